package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/language/source"
)

// Exception is who is let in by command: it holds before the rules of input and forward.
type Exception struct {
	What    addrset.Range
	Service string    // as a rule names it; "" is every one
	Until   time.Time // zero: for good
	OverBan bool      // it holds before bans too
}

// ExceptionBounds is what a policy says of exceptions.
type ExceptionBounds struct {
	Pos        Pos
	None       bool          // nobody may be let in
	Who        []Who         // who may be, never negated; empty: everybody
	Longest    time.Duration // 0: for good too
	WhoPos     Pos
	LongestPos Pos
}

// exceptions reads whom commands may let in, or the controller of a fleet.
func (f *file) exceptions(e source.Entry, of **ExceptionBounds) {
	b := *of
	if b == nil {
		b = &ExceptionBounds{}
	}
	if !f.Once(e, &b.Pos) {
		return
	}
	*of = b
	if e.Value.Kind != yaml.MappingNode {
		text, ok := f.Text(e.Value, "exceptions")
		if b.None = ok; ok && text != "none" {
			f.fail(f.At(e.Value), "write none, or a mapping with who and longest", "exceptions must be none or a mapping, not %s", source.Quote(text))
		}
		return
	}
	for _, k := range f.Known(e.Value, grammar.Of("exceptions")) {
		switch k.Name {
		case "who":
			b.WhoPos = f.At(k.Key)
			if b.Who = f.bans(k); len(b.Who) == 0 {
				f.fail(f.At(k.Value), "write exceptions: none", "who is empty")
			}
		case "longest":
			b.LongestPos = f.At(k.Key)
			b.Longest = valueOf(f, k.Value, "longest", parseDuration, formatDuration)
		}
	}
}

// MayExcept says why the policy forbids that somebody is let in for a time, 0 being for
// good, as an *Error; inWho says whether Who has all of an address, and is asked where it
// matters. Its error is another one.
func (p *Policy) MayExcept(what addrset.Range, length time.Duration, inWho func(addrset.Range) (bool, error)) error {
	if p.Exceptions == nil {
		return nil
	}
	return p.mayExcept(p.Exceptions, "by command", what, length, inWho)
}

func (p *Policy) mayExcept(b *ExceptionBounds, by string, what addrset.Range, length time.Duration, inWho func(addrset.Range) (bool, error)) error {
	switch {
	case b.None:
		return p.Errorf(b.Pos, "", "the policy allows no exceptions %s", by)
	case b.Longest > 0 && (length == 0 || length > b.Longest):
		return p.Errorf(b.LongestPos, "", "the policy allows no exceptions %s for longer than %s", by, formatDuration(b.Longest))
	case len(b.Who) == 0:
		return nil
	}
	in, err := inWho(what)
	if err == nil && !in {
		err = p.Errorf(b.WhoPos, "", "%s is not an address that the policy lets in %s", what, by)
	}
	return err
}

// ExceptionsFile is the name of the file that the rules of exceptions are of. There is
// none: they are kept in the state.
const ExceptionsFile = "exceptions"

// overBan is behind the text of exceptions that hold before bans; no policy may write it.
const overBan = " over bans"

// text is the exception as a rule.
func (e *Exception) text() string {
	text := "allow " + cmp.Or(e.Service, "any") + " from " + e.What.String()
	if !e.Until.IsZero() {
		text += " until " + e.Until.UTC().Format(time.RFC3339)
	}
	if e.OverBan {
		text += overBan
	}
	return text
}

// Except puts exceptions before the rules, in place of those that were there. What is
// wrong with a service is told with the word service in place of the file.
func (p *Policy) Except(list []Exception) error {
	sets := p.Sets
	*p = *p.Unexcepted()
	p.Sets = sets
	if len(list) == 0 {
		return nil
	}
	// Of the policy's own services none has a say: it may have got one that goes by the name
	// of a built-in one since.
	asking := newLoader(ExceptionsFile).policy.Asking()
	lines := make([]string, len(list))
	var rules []*Rule
	for i := range list {
		e := &list[i]
		pos := Pos{File: ExceptionsFile, Line: i + 1, Column: 1}
		refs, err := asking.Services("service", cmp.Or(e.Service, "any"))
		if err != nil {
			return err
		}
		rule := Rule{
			Pos: pos, Action: Allow, Services: refs, Exception: true, OverBan: e.OverBan, Until: e.Until.UTC(),
			From: &Who{Pos: pos, Items: []WhoItem{{Pos: pos, Literal: e.What}}},
		}
		lines[i] = e.text()
		rules = append(rules, p.letIn(rule)...)
	}
	p.precede(rules)
	p.lines[ExceptionsFile] = lines
	return nil
}

// letIn are the rules that let in as one says.
func (p *Policy) letIn(rule Rule) (rules []*Rule) {
	// What keeps no state has answers by its ports alone.
	if bypassed := p.bypassed(); len(rule.Services) == 0 && len(bypassed) > 0 {
		named := rule
		named.Services = bypassed
		rules = append(rules, &named)
	}
	rules = append(rules, &rule)
	if ported(rule.Services) {
		published := rule
		published.Published = true
		rules = append(rules, &published)
	}
	for _, r := range rules {
		r.Text = r.canonical()
		if r.OverBan {
			r.Text += overBan
		}
	}
	return rules
}

// LetIn puts before the rules that all of some are let in, for whoever proves what happens to a
// policy then.
func (p *Policy) LetIn(who []Who) {
	var rules []*Rule
	for i := range who {
		rules = append(rules, p.letIn(Rule{Pos: who[i].Pos, Action: Allow, Exception: true, From: &who[i]})...)
	}
	p.precede(rules)
}

// precede puts rules before those of input and forward.
func (p *Policy) precede(rules []*Rule) {
	for _, s := range []*Section{p.Input, p.Forward} {
		if s == nil {
			continue
		}
		for _, r := range slices.Backward(rules) {
			own := *r // a rule is of one section
			s.Rules = slices.Insert(s.Rules, 0, &own)
		}
	}
}

// Add puts what commands have added into the living sets, in place of what they had added
// before. What is for no living set stays out.
func (p *Policy) Add(list []Addition) {
	p.Sets = slices.Clone(p.Sets)
	living := map[string]*Set{}
	for i, s := range p.Sets {
		if s.Living {
			own := *s
			own.Added = nil
			p.Sets[i], living[s.Name] = &own, &own
		}
	}
	for _, a := range list {
		if s := living[a.Set]; s != nil {
			s.Added = append(s.Added, a)
		}
	}
}

// Unexcepted is the policy without exceptions, and without what commands have added to sets.
func (p *Policy) Unexcepted() *Policy {
	_, excepted := p.lines[ExceptionsFile]
	added := slices.ContainsFunc(p.Sets, func(s *Set) bool { return len(s.Added) > 0 })
	if !excepted && !added {
		return p
	}
	out := *p
	out.Add(nil)
	out.lines = maps.Clone(p.lines)
	delete(out.lines, ExceptionsFile)
	for _, s := range []**Section{&out.Input, &out.Forward} {
		if *s != nil {
			own := **s
			own.Rules = slices.DeleteFunc(slices.Clone(own.Rules), func(r *Rule) bool { return r.Exception })
			*s = &own
		}
	}
	return &out
}

// OverBans are the rules of exceptions that hold before bans, each once.
func (p *Policy) OverBans() []*Rule {
	for _, s := range []*Section{p.Input, p.Forward} {
		if s != nil {
			return slices.DeleteFunc(slices.Clone(s.Rules), func(r *Rule) bool { return !r.OverBan })
		}
	}
	return nil
}

func (p *Policy) bypassed() []ServiceRef {
	var out []ServiceRef
	for _, b := range p.Tracking.Bypass {
		for _, ref := range b.Services {
			if !slices.ContainsFunc(out, func(o ServiceRef) bool { return o.Text == ref.Text }) {
				out = append(out, ref)
			}
		}
	}
	return out
}

// ported says whether a DNAT may have been about a service: one with ports, or any.
func ported(refs []ServiceRef) bool {
	for _, ref := range refs {
		for _, m := range ref.Matches {
			if !m.Any && len(m.Ports) == 0 {
				return false
			}
		}
	}
	return true
}

// Service is how any policy writes a service that somebody has named: in the canonical form
// of rules, and what the policy's own services stand for in their place. "" is every one.
func (p *Policy) Service(text string) (string, error) {
	if strings.TrimSpace(text) == "" || text == "any" {
		return "", nil
	}
	refs, err := p.Asking().Services("service", text)
	if err != nil {
		return "", err
	}
	var words []string
	for _, ref := range refs {
		own := slices.ContainsFunc(p.Services, func(s *Service) bool { return s.Name == ref.Text })
		if !own {
			words = append(words, ref.Text)
			continue
		}
		for _, m := range ref.Matches {
			if m.Any {
				return "", nil
			}
			words = append(words, strings.Split(m.String(), ", ")...)
		}
	}
	slices.Sort(words)
	if words = slices.Compact(words); len(words) == 0 {
		return "", nil
	}
	return listText(words), nil
}

// Polices says why an exception would do nothing to a policy; nil where it does.
func (p *Policy) Polices() error {
	if p.Input == nil && p.Forward == nil {
		return fmt.Errorf("the running policy has neither input nor forward, so everything is allowed")
	}
	return nil
}
