package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/nearest"
	"sluice/internal/language/source"
)

// rule is a rule or an expectation while it is read.
type rule struct {
	*words
	hook   Hook
	rule   *Rule
	expect *Expectation    // nil for a rule; rule is then its words
	seen   map[string]bool // clauses
	// service is the word that was read as the service, since a misspelt word
	// of the language is read as one.
	service token
	mark    int // how many checks were put off before this rule
}

// ruleNode reads a rule in either form; nil when it has an error.
func (f *file) ruleNode(n *yaml.Node, hook Hook) *Rule {
	toks, ok := f.ruleTokens(n, "rule")
	if !ok {
		return nil
	}
	r := f.rule(toks, hook)
	if r != nil {
		r.Pos = f.At(n)
		f.setLine(n, r.Text)
	}
	return r
}

// ruleTokens turns either form of a rule or an expectation, which is the name of
// its shape, into tokens.
func (f *file) ruleTokens(n *yaml.Node, shapeName string) ([]token, bool) {
	what := grammar.Of(shapeName).What
	switch {
	case n.Kind == yaml.MappingNode && f.Accident(n) == "":
		return f.ruleMapping(n, shapeName)
	case n.Kind == yaml.ScalarNode && !source.IsNull(n) && strings.TrimSpace(n.Value) != "":
		return f.tokens(n)
	case n.Kind == yaml.MappingNode:
		k := n.Content[0]
		f.fail(f.After(k), f.Accident(n), "%s must be one line of words", what)
	case n.Kind == yaml.ScalarNode:
		f.fail(f.At(n), "", "%s is empty", shapeName)
	default:
		f.fail(f.At(n), "", "%s must be a line of words or a mapping, not %s", what, source.KindName(n))
	}
	return nil, false
}

func (f *file) rule(toks []token, hook Hook) *Rule {
	r := &rule{words: &words{file: f, toks: toks}, hook: hook, rule: &Rule{Pos: toks[0].pos}, seen: map[string]bool{}, mark: len(f.later)}
	if !r.parse() {
		return nil
	}
	r.rule.Text = r.rule.canonical()
	return r.rule
}

func (r *rule) parse() bool {
	if !r.action() {
		return false
	}
	before := len(r.errs)
	for !r.done() {
		t := r.peek()
		if c := r.clause(t); c != nil {
			if r.seen[c.word] {
				return r.failAt(t, "", "duplicate %s", source.Quote(c.word))
			}
			r.seen[c.word] = true
			if why, wayOut := noSenseExpected(c.word); r.expect != nil && why != "" {
				return r.failAt(t, wayOut, "%s cannot be used in an expectation: %s", source.Quote(c.word), why)
			}
			if why, wayOut := noSense(c.word, r.hook); r.expect == nil && why != "" {
				r.failAt(t, wayOut, "%s cannot be used in %s: %s", source.Quote(c.word), r.hook, why)
			}
			if r.rule.Action == ClampMSS && slices.Contains([]string{"published", "by", "limit", "max", "until", "log"}, c.word) {
				r.failAt(t, "remove it", "%s cannot be used with clamp mss", source.Quote(c.word))
			}
			r.take()
			if !c.parse(r) {
				return false
			}
			continue
		}
		if r.seen["service"] || r.rule.Action == ClampMSS || !r.serviceMayStand() {
			return r.unexpected(t)
		}
		r.seen["service"] = true
		r.service = t
		refs, ok := r.services()
		if !ok {
			return false
		}
		r.rule.Services = refs
	}
	if r.expect != nil {
		r.way()
	}
	r.families()
	return len(r.errs) == before
}

// clause is the clause that a token begins, or nil.
func (r *rule) clause(t token) *clause {
	if t.kind != wordToken {
		return nil
	}
	if r.expect != nil {
		if c := expectClauseNamed(t.text); c != nil {
			return c
		}
	}
	return clauseNamed(t.text)
}

// serviceMayStand reports whether only the words that may come before the
// service have come.
func (r *rule) serviceMayStand() bool {
	for word := range r.seen {
		if word != "published" && word != "ipv4" && word != "ipv6" {
			return false
		}
	}
	return true
}

// unexpected reports a token that begins no clause, with the likeliest cause.
func (r *rule) unexpected(t token) bool {
	// What the rule names may be no name at all.
	r.later = r.later[:r.mark]
	all := clauseWords()
	if r.expect != nil {
		all = expectWords()
	}
	if r.expect == nil && r.rule.Action != ClampMSS {
		if line := insteadOfLine(r.toks, r.hook); line != "" {
			if r.previous() == r.service && insteadOf(r.service.text) != "" {
				t = r.service
			}
			return r.failAt(t, line, "unexpected %s", t.describe())
		}
	}
	if t.kind != wordToken {
		hint := ""
		switch {
		case t.kind == textToken:
			hint = `write log "…" for the prefix of a log`
		case t.kind == commaToken && r.next > 0:
			hint = listed(r.toks[r.next-1:])
		}
		return r.failAt(t, hint, "unexpected %s", t.describe())
	}
	switch near := nearest.Of(t.text, all); {
	case r.previous() == r.service && insteadOf(r.service.text) != "":
		return r.failAt(r.service, insteadOf(r.service.text), "unknown word %s", source.Quote(r.service.text))
	case strings.HasPrefix(r.previous().text, "countr"):
		return r.failAt(r.previous(), "define a set of the country, and name that: {countries: [NO]}", "unknown word %s", source.Quote(r.previous().text))
	case insteadOf(t.text) != "" && r.rule.Action != ClampMSS:
		return r.failAt(t, insteadOf(t.text), "unknown word %s", source.Quote(t.text))
	case r.service.kind == wordToken && r.previous() == r.service && isPortOf(r.service.text, t.text):
		return r.failAt(t, "write "+r.service.text+"/"+t.text, "unexpected %s", source.Quote(t.text))
	case near != "":
		return r.failAt(t, "", "unknown word %s, did you mean %q?", source.Quote(t.text), near)
	case r.service.kind == wordToken && nearest.Of(r.service.text, all) != "" && builtinNamed(r.service.text) == nil && r.previous() == r.service:
		return r.failAt(r.service, "", "unknown word %s, did you mean %q?", source.Quote(r.service.text), nearest.Of(r.service.text, all))
	case slices.Contains([]string{"ipv4", "ipv6", "inet", "inet6", "ip", "ip6", "v4", "v6"}, t.text):
		return r.failAt(t, "write ipv4 or ipv6", "unknown word %s", source.Quote(t.text))
	case slices.Contains([]string{"if", "when", "with", "via", "proto"}, t.text):
		return r.failAt(t, "a rule is ACTION [SERVICE] [ipv4|ipv6] [from WHO] [to WHO] [in ZONE] [out ZONE] …", "unknown word %s", source.Quote(t.text))
	case t.text == "stateless" || t.text == "accelerate":
		return r.failAt(t, "", "%s is not a word of rules", source.Quote(t.text))
	case r.expect != nil && slices.Contains(hookWords, t.text):
		return r.failAt(t, "write on "+t.text, "unexpected %s", source.Quote(t.text))
	case !r.seen["service"] && r.rule.Action != ClampMSS:
		return r.failAt(t, "write the service right after the action: "+string(r.rule.Action)+" "+t.text+" …", "unexpected %s", source.Quote(t.text))
	case r.expect != nil && slices.Contains(verdictWords, t.text):
		return r.failAt(t, "write two expectations", "second verdict %s in one expectation", source.Quote(t.text))
	case slices.Contains(actionWords, t.text):
		return r.failAt(t, "write two rules", "second action %s in one rule", source.Quote(t.text))
	}
	return r.failAt(t, "expected one of "+strings.Join(all, ", "), "unexpected %s", source.Quote(t.text))
}

// previous is the token before the next one.
func (r *rule) previous() token {
	if r.next == 0 {
		return token{}
	}
	return r.toks[r.next-1]
}

func (r *rule) action() bool {
	if r.expect != nil {
		return r.verdict()
	}
	t, ok := r.word("an action", "a rule begins with allow, drop or reject")
	if !ok {
		return false
	}
	switch t.text {
	case "allow", "drop", "reject":
		r.rule.Action = Action(t.text)
		return true
	case "clamp":
		r.rule.Action = ClampMSS
		if why, wayOut := noSense("clamp", r.hook); why != "" {
			return r.failAt(t, wayOut, "%s cannot be used in %s: %s", source.Quote("clamp mss"), r.hook, why)
		}
		if !r.accept("mss") {
			return r.failAt(r.peek(), "write clamp mss", "expected mss after clamp, found %s", r.peek().describe())
		}
		return true
	}
	hint := insteadOfLine(r.toks, r.hook)
	switch word := strings.ToLower(t.text); {
	case hint != "":
	case slices.Contains([]string{"accept", "permit", "pass"}, word):
		hint = "write allow"
	case slices.Contains([]string{"deny", "block", "discard"}, word):
		hint = "write drop, or reject to answer"
	case slices.Contains([]string{"masquerade", "redirect", "map", "snat", "dnat"}, word):
		hint = "put address translation under nat"
	case word == "limit":
		hint = "write allow SERVICE limit 6/30s per source"
	case insteadOf(word) != "":
		hint = insteadOf(word)
	default:
		hint = "a rule begins with allow, drop or reject, as in allow ssh from 203.0.113.0/24"
	}
	return r.failAt(t, hint, "unknown action %s%s", source.Quote(t.text), source.DidYouMean(t.text, actionWords))
}

func (r *rule) published() bool {
	r.rule.Published = true
	return true
}

func (r *rule) family() bool {
	t := r.previous()
	if r.seen["ipv4"] && r.seen["ipv6"] {
		return r.failAt(t, "remove both", "both ipv4 and ipv6 in one rule")
	}
	r.rule.Family = 4
	if t.text == "ipv6" {
		r.rule.Family = 6
	}
	return true
}

func (r *rule) from() bool { return r.end(&r.rule.From, "from", r.hook == Output) }

func (r *rule) to() bool { return r.end(&r.rule.To, "to", r.hook == Input) }

func (r *rule) end(into **Who, word string, noZone bool) (ok bool) {
	if *into, ok = r.who(); ok && r.expect == nil { // of an expectation, all words say its hook
		r.checkWho(*into, word, noZone)
	}
	return ok
}

func (r *rule) in() (ok bool) {
	r.rule.In, ok = r.zone("in")
	return ok
}

func (r *rule) out() (ok bool) {
	r.rule.Out, ok = r.zone("out")
	return ok
}

func (r *rule) by() bool {
	t := r.peek()
	if !r.accept("user") {
		hint := "write by user NAME"
		if t.text == "group" {
			hint = "by can only be followed by user; write by user NAME"
		}
		return r.failAt(t, hint, "expected user after by, found %s", t.describe())
	}
	return r.list("users", func() bool {
		t, ok := r.word("the name or number of a user", "")
		if !ok || !r.problemAt(t, checkUser(t.text)) {
			return false
		}
		if slices.ContainsFunc(r.rule.Users, func(w Word) bool { return w.Text == t.text }) {
			return r.failAt(t, "", "duplicate user %s", source.Quote(t.text))
		}
		r.rule.Users = append(r.rule.Users, Word{t.pos, t.text})
		return true
	})
}

func (r *rule) log() (ok bool) {
	r.rule.Log, ok = r.logPrefix()
	return ok
}

// logPrefix reads the text behind log, which may be left out.
func (w *words) logPrefix() (*string, bool) {
	t := w.peek()
	if w.is("prefix") {
		return nil, w.failAt(t, insteadOf(t.text), "unexpected %s", t.describe())
	}
	if t.kind == wordToken && clauseNamed(t.text) == nil {
		return nil, w.failAt(t, "write log \""+t.text+"\"", "write the prefix of the log in quotes")
	}
	prefix := ""
	if t.kind == textToken {
		w.take()
		prefix = t.text
	}
	return &prefix, w.problemAt(t, checkLogPrefix(prefix))
}

// isPortOf says that a word behind a protocol was meant for its ports, as in
// "tcp 22".
func isPortOf(protocol, word string) bool {
	return slices.Contains([]string{"tcp", "udp", "sctp", "dccp", "udplite"}, protocol) && strings.Trim(word, "0123456789-") == ""
}
