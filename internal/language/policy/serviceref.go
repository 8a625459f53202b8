package policy

import (
	"slices"
	"strings"

	"sluice/internal/base/nearest"
	"sluice/internal/language/source"
)

// services reads the service of a rule: one, a list, or any, which is nil.
func (w *words) services() ([]ServiceRef, bool) {
	if w.accept("any") {
		return nil, true
	}
	out := []ServiceRef{}
	ok := w.list("services", func() bool {
		ref, ok := w.service()
		if !ok {
			return false
		}
		if slices.ContainsFunc(out, func(o ServiceRef) bool { return o.Text == ref.Text }) {
			w.fail(ref.Pos, "", "duplicate service %s", source.Quote(ref.Text))
			return false
		}
		out = append(out, ref)
		return true
	})
	if !ok {
		return nil, false
	}
	// The matches of names are known when all is read.
	w.after(func() {
		for i := range out {
			w.resolve(&out[i])
		}
	})
	return out, true
}

// service reads one service, which is two words for a type of ICMP.
func (w *words) service() (ServiceRef, bool) {
	t, ok := w.word("a service", "write a name such as ssh, or tcp/80, udp/53, icmp echo-request, proto/112")
	if !ok {
		return ServiceRef{}, false
	}
	text := t.text
	at := t
	if next := w.peek(); t.text == "icmp" && next.kind == wordToken && clauseNamed(next.text) == nil && expectClauseNamed(next.text) == nil {
		text += " " + next.text
		at = w.take()
	}
	m, p := parseServiceWord(text)
	if p != nil {
		return ServiceRef{}, w.problemAt(at, p)
	}
	if m != nil {
		return ServiceRef{Pos: t.pos, Text: m.String(), Matches: []ServiceMatch{*m}}, true
	}
	if t.text == "any" {
		return ServiceRef{}, w.failAt(t, "remove the list", "any in a list matches every service")
	}
	if isLiteral(t.text) {
		return ServiceRef{}, w.failAt(t, "write from or to before addresses", "%s is not a service", source.Quote(t.text))
	}
	if p := checkName(t.text); p != nil {
		return ServiceRef{}, w.problemAt(t, p)
	}
	return ServiceRef{Pos: t.pos, Text: t.text}, true
}

// resolve fills in what a name means, and reports an unknown one.
func (f *file) resolve(ref *ServiceRef) {
	if ref.Matches != nil {
		return
	}
	matches, ok := f.matchesOf(ref.Text)
	if ok {
		ref.Matches = matches
		return
	}
	f.unknownService(ref.Pos, ref.Text)
}

// matchesOf finds a service by name: the policy's own, then the built-in ones.
func (l *loader) matchesOf(name string) ([]ServiceMatch, bool) {
	if d := l.services[name]; d != nil {
		return l.expand(d), true
	}
	if s := builtinNamed(name); s != nil {
		return s.Matches, true
	}
	return nil, false
}

func (l *loader) unknownService(pos Pos, name string) {
	if l.unread || l.required[name] {
		return
	}
	names := sortedKeys(l.services)
	for _, b := range builtinServices {
		names = append(names, b.name)
	}
	hint := ""
	switch {
	case l.sets[name] != nil:
		hint = name + " is a set; write from " + name + " or to " + name
	case l.zones[name] != nil:
		hint = name + " is a zone; write from " + name + " or in " + name
	case insteadOf(name) != "":
		names, hint = nil, insteadOf(name)
	case nearest.Of(name, names) == "":
		hint = "define it under services: " + name + ": tcp/PORT"
	}
	l.fail(pos, hint, "unknown service %s%s", source.Quote(name), source.DidYouMean(name, names))
}

// serviceDefinition is an entry of services while it is read.
type serviceDefinition struct {
	service *Service
	file    *file
	words   []ServiceRef
	state   int // 0 not expanded, 1 on the way, 2 done
}

// expand fills in the matches of a service and of those that it names.
func (l *loader) expand(d *serviceDefinition) []ServiceMatch {
	if d.state != 0 {
		return d.service.Matches
	}
	d.state = 1
	defer func() { d.state = 2 }()
	var all []ServiceMatch
	for i := range d.words {
		ref := &d.words[i]
		switch other := l.services[ref.Text]; {
		case ref.Matches != nil:
		case ref.Text == d.service.Name && builtinNamed(ref.Text) != nil:
			ref.Matches = builtinNamed(ref.Text).Matches
		case other != nil && other.state == 1:
			l.fail(ref.Pos, "", "services refer to each other in a loop: %s", strings.Join(l.circle(other, d), " → "))
			continue
		default:
			d.file.resolve(ref)
		}
		all = append(all, ref.Matches...)
	}
	d.service.Matches = mergeMatches(all)
	return d.service.Matches
}

// circle returns the names on the way from one service to another that names
// it, and the first again.
func (l *loader) circle(from, to *serviceDefinition) []string {
	path := wayTo(from.service.Name, to.service.Name, func(name string) (next []string) {
		for _, ref := range l.services[name].words {
			if ref.Text != name && l.services[ref.Text] != nil {
				next = append(next, ref.Text)
			}
		}
		return next
	})
	return append(path, from.service.Name)
}

// wayTo is the names on the way from one to another, both included, where next gives those
// that a name leads to; nil where there is no way.
func wayTo(from, to string, next func(string) []string) []string {
	seen := map[string]bool{}
	var find func(name string) []string
	find = func(name string) []string {
		switch {
		case seen[name]:
			return nil
		case name == to:
			return []string{name}
		}
		seen[name] = true
		for _, n := range next(name) {
			if path := find(n); path != nil {
				return append([]string{name}, path...)
			}
		}
		return nil
	}
	return find(from)
}
