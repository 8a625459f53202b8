package nftables

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
)

// Nearly every host has one interface that default routes leave by, and a name is compared
// in a third of the time that looking it up takes. So while a set of names that follows the
// host holds one, rules compare that, and the set says which it is. When the host moves,
// the set is edited first and then the rules are turned: what a rule compares in between
// is what it would have asked before.

// comparing is the tree with rules that compare the one name of a set: of the kernel's
// where it has one, else of its own.
func (t *Tree) comparing(have *Tree) *Tree {
	names := map[string]string{}
	for _, k := range t.Sets {
		if !k.Compared {
			continue
		}
		if have != nil {
			if h := have.set(k.Name); h != nil && h.Len() > 0 && !have.differs(h) {
				k = h
			}
		}
		if name := k.comparable(); name != "" {
			names[k.Name] = name
		}
	}
	if len(names) == 0 {
		return t
	}
	out := *t
	out.Chains = compared(t.Chains, names)
	return &out
}

// comparable is the one name in a set that a rule can compare; "" where there is none.
func (s *Set) comparable() string {
	if len(s.Elements.Tuples) != 1 {
		return ""
	}
	name := s.Elements.Tuples[0]
	if name == loopback || !validInterface(name) || strings.HasSuffix(name, "*") {
		return ""
	}
	return name
}

// compared gives the chains with names in place of the sets that hold them. A chain
// that asks none is the same one.
func compared(chains []*Chain, names map[string]string) []*Chain {
	asks := func(r Rule) bool {
		return slices.ContainsFunc(r.Statements, func(s Statement) bool { return s.Kind == Match && names[s.Set] != "" })
	}
	out := slices.Clone(chains)
	for i, c := range out {
		if !slices.ContainsFunc(c.Rules, asks) {
			continue
		}
		own := *c
		own.Rules = slices.Clone(c.Rules)
		for j, r := range own.Rules {
			if asks(r) {
				own.Rules[j].Statements = withNames(r.Statements, names)
			}
		}
		out[i] = &own
	}
	return out
}

func withNames(statements []Statement, names map[string]string) []Statement {
	out := slices.Clone(statements)
	for i, s := range out {
		if name := names[s.Set]; s.Kind == Match && name != "" {
			out[i].Set, out[i].Values = "", []string{name}
		}
	}
	return out
}

// comparedRoute is the interface that rules in the kernel compare for those of default routes; ""
// where they look it up.
func (t *Tree) comparedRoute() string {
	used, name := t.used(), ""
	for _, k := range t.Sets {
		switch {
		case !k.follows():
		case used["set "+k.Name], t.differs(k):
			return ""
		default:
			name = k.comparable()
		}
	}
	return name
}

// comparedSets are the sets whose one name rules compare.
func (t *Tree) comparedSets() (names []string) {
	for _, k := range t.Sets {
		if k.Compared {
			names = append(names, k.Name)
		}
	}
	return names
}

// namedRules is what Turned reads: the chains with rules that compare the one name of a
// set, as they would look it up.
type namedRules struct {
	Table  string
	Sets   []string
	Chains []*Chain
}

// Named are the rules that compare the one name of a set.
func (a *artifact) Named() []byte {
	out := namedRules{Table: a.Tree.Table, Sets: a.Tree.comparedSets()}
	for _, c := range a.Tree.Chains {
		if slices.ContainsFunc(c.Rules, out.asks) {
			out.Chains = append(out.Chains, c)
		}
	}
	if len(out.Chains) == 0 {
		return nil
	}
	text, _ := json.Marshal(out) // texts and numbers: it cannot fail
	return text
}

func (n *namedRules) asks(r Rule) bool { return slices.ContainsFunc(r.Statements, n.named) }

func (n *namedRules) named(s Statement) bool {
	return s.Kind == Match && s.Set != "" && slices.Contains(n.Sets, s.Set)
}

// is says of a rule in the kernel that it is one of these, whichever interface it names.
func (n *namedRules) is(r, have Rule) bool {
	want, has := normal(r.Statements), normal(have.Statements)
	if len(want) != len(has) {
		return false
	}
	for i, s := range want {
		h := has[i]
		if n.named(s) && h.Kind == Match && h.Field == s.Field && h.Set == "" && len(h.Values) == 1 {
			has[i].Set, has[i].Values = s.Set, s.Values
		}
	}
	return Rule{Statements: want, Comment: r.Comment}.line() == Rule{Statements: has, Comment: have.Comment}.line()
}

// Turned replaces the rules that compare another interface than sets hold, one by one:
// all else in their chains stays, be it somebody else's.
func (n nftables) Turned(ctx context.Context, rules []byte) (backend.Transaction, error) {
	var all namedRules
	if err := json.Unmarshal(rules, &all); err != nil {
		return nil, fmt.Errorf("read the rules that name interfaces: %w", err)
	}
	s, err := read(ctx, all.Table, false)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, set := range all.Sets {
		if h := s.Tree.set(set); h != nil && !s.Tree.differs(h) {
			names[set] = h.comparable()
		}
	}
	var b strings.Builder
	for _, c := range all.Chains {
		have, rest := s.Tree.chain(c.Name), c.Rules
		if have == nil {
			continue
		}
		for _, h := range have.Rules {
			// Rules that ask for bans may not be there.
			at := slices.IndexFunc(rest, func(r Rule) bool { return all.is(r, h) })
			if at < 0 {
				continue
			}
			r := rest[at]
			rest = rest[at+1:]
			r.Statements = withNames(r.Statements, names)
			if r.normalLine() != h.normalLine() {
				fmt.Fprintf(&b, "replace rule %s handle %d %s\n", place(all.Table, c.Name), h.Handle, r.line())
			}
		}
	}
	if b.Len() == 0 {
		return nil, nil
	}
	return Script(b.String()), nil
}
