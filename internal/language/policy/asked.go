package policy

import (
	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

// Asking reads single words of the language, given on a command line, with the
// names of a policy that is read already. What is wrong is told as in a policy,
// with the name of the option in place of the file.
type Asking struct{ policy *Policy }

// Asking prepares for questions about p.
func (p *Policy) Asking() Asking { return Asking{p} }

// Services reads the service of a rule: "ssh", "tcp/22", "[http, https]", "icmp
// echo-request". Nil is any service.
func (a Asking) Services(option, text string) ([]ServiceRef, error) {
	var out []ServiceRef
	err := a.read(option, text, func(w *words) (ok bool) {
		out, ok = w.services()
		return ok
	})
	return out, err
}

// Who reads a WHO: "office", "not office", "[office, 192.0.2.0/24]". Nil is
// anybody. Word is the word of a rule that it is behind, from or to; noZone
// says that a zone cannot be used there.
func (a Asking) Who(option, text, word string, noZone bool) (*Who, error) {
	var out *Who
	err := a.read(option, text, func(w *words) (ok bool) {
		if out, ok = w.who(); ok {
			w.mayFillAll(out, "a question")
			w.checkWho(out, word, noZone)
		}
		return ok
	})
	return out, err
}

// Zone reads the name of a zone; word is the word of a rule that it is
// behind, in or out.
func (a Asking) Zone(option, text, word string) (*Word, error) {
	var out *Word
	err := a.read(option, text, func(w *words) (ok bool) {
		out, ok = w.zone(word)
		return ok
	})
	return out, err
}

// read takes all words of a text.
func (a Asking) read(option, text string, parse func(*words) bool) error {
	l := a.policy.knowing(option)
	f := &file{loader: l, File: source.New(option, []byte(text), dialect, &l.errs)}
	l.policy.lines[option] = f.Lines
	if errs := f.CheckText([]byte(text)); len(errs) > 0 {
		return errs
	}
	toks, ok := f.tokens(&yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: 1, Column: 1})
	if ok {
		w := &words{file: f, toks: toks}
		if parse(w) && !w.done() {
			t := w.peek()
			w.failAt(t, "put several into a list: [A, B]", "unexpected %s", t.describe())
		}
	}
	for len(l.later) > 0 && len(l.errs) == 0 {
		check := l.later[0]
		l.later = l.later[1:]
		check()
	}
	if len(l.errs) > 0 {
		return l.errs.Sorted([]string{option})
	}
	return nil
}

// ICMPWord is the word of a rule for a type of ICMP, or of ICMPv6 where six
// holds; false where the language has none.
func ICMPWord(six bool, number uint64) (string, bool) {
	for _, t := range icmpTypes {
		n := t.V4
		if six {
			n = t.V6
		}
		if n >= 0 && uint64(n) == number {
			return "icmp " + t.Name, true
		}
	}
	return "", false
}
