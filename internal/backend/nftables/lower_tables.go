package nftables

import (
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// tables moves NAT into tables of one family, one for each that rules rewrite packets
// of. Sets that others ask too, and counters that others count, are in each table.
func (l *lowering) tables() {
	t := l.tree
	nat := t.reached(isNAT)
	if len(nat) == 0 || !l.divides(nat) {
		return
	}
	of := &Tree{Sets: t.Sets, Chains: slices.DeleteFunc(slices.Clone(t.Chains), func(c *Chain) bool { return !nat[c.Name] })}
	t.Chains = slices.DeleteFunc(t.Chains, isNAT)
	for _, f := range families {
		own := of.inFamily(f)
		t.Chains, t.Sets = append(t.Chains, own.Chains...), append(t.Sets, own.Sets...)
	}
	l.unused()
	l.moveCounters(of.used())
}

func isNAT(c *Chain) bool { return c.Base != nil && c.Base.Type == "nat" }

// divides says whether NAT may be in tables of its own: everything that it shares with
// other rules is of a kind that may be there twice, and not large.
func (l *lowering) divides(nat map[string]bool) bool {
	t := l.tree
	others := t.reached(func(c *Chain) bool { return c.Base != nil && !isNAT(c) })
	elsewhere := (&Tree{Chains: slices.DeleteFunc(slices.Clone(t.Chains), func(c *Chain) bool { return !others[c.Name] }), Sets: t.Sets}).used()
	twice := 0
	seen := map[string]bool{}
	for _, c := range t.Chains {
		if !nat[c.Name] {
			continue
		}
		if c.Base != nil && c.Base.Policy != "accept" {
			return false
		}
		if others[c.Name] {
			twice += len(c.Rules)
		}
		for _, s := range statementsOf(c) {
			if !divisible(s) {
				return false
			}
			k := t.set(s.Set)
			if k == nil || seen[k.Name] {
				continue
			}
			seen[k.Name] = true
			if k.Life == program.Dynamic || k.byCommand() {
				return false
			}
			if elsewhere["set "+k.Name] {
				twice += k.Len()
			}
		}
	}
	return twice <= small
}

func statementsOf(c *Chain) []Statement {
	var out []Statement
	for _, r := range c.Rules {
		out = append(out, r.Statements...)
	}
	return out
}

// divisible says whether a statement means the same where it is there twice, and is
// listed by nft alike in every table.
func divisible(s Statement) bool {
	switch s.Kind {
	case Match, VerdictMap, Verdict, Jump, Goto, Count, Log, Rewrite,
		DNAT, SNAT, DNATPrefix, SNATPrefix, Masquerade, Redirect:
		return !strings.Contains(s.Field, "@")
	}
	return false
}

// inFamily is what of NAT is in the table of a family: the rules that packets of it
// meet. Base chains that do nothing to them are left out.
func (t *Tree) inFamily(family int) *Tree {
	out := &Tree{}
	used := t.used()
	for _, k := range t.Sets {
		if used["set "+k.Name] {
			own := *k
			own.Name = withFamily(family, k.Name)
			own.Elements.Verdicts = eachInFamily(k.Elements.Verdicts, family)
			out.Sets = append(out.Sets, &own)
		}
	}
	for _, c := range t.Chains {
		own := &Chain{Name: withFamily(family, c.Name), Comment: c.Comment, Base: c.Base}
		for _, r := range c.Rules {
			if statements, some := forFamily(r.Statements, family); some {
				r.Statements = statements
				own.Rules = append(own.Rules, r)
			}
		}
		out.Chains = append(out.Chains, own)
	}
	idle := func(base *Chain) bool {
		to := out.reached(func(c *Chain) bool { return c == base })
		return !slices.ContainsFunc(out.Chains, func(c *Chain) bool { return to[c.Name] && slices.ContainsFunc(statementsOf(c), out.does) })
	}
	out.Chains = slices.DeleteFunc(slices.Clone(out.Chains), func(c *Chain) bool { return c.Base != nil && idle(c) })
	return out
}

// does says of a statement that it is neither a condition nor the way to another rule.
func (t *Tree) does(s Statement) bool {
	switch s.Kind {
	case Match, Jump, Goto:
		return false
	case Verdict:
		return s.Name == "drop"
	case VerdictMap:
		return slices.Contains(t.verdicts(s), "drop")
	}
	return true
}

// otherWords begin fields that packets of the other family alone have.
var otherWords = map[int][]string{4: {"ip6", "icmpv6", "exthdr", "frag", "rt", "hbh", "dst", "mh"}, 6: {"ip", "icmp"}}

// forFamily gives a rule's statements as they are in the table of a family, which asks
// for no family; false where no packet of it passes them.
func forFamily(statements []Statement, family int) ([]Statement, bool) {
	var out []Statement
	for _, s := range statements {
		if !s.fits(family) {
			return nil, false
		}
		if s.asksFamily() {
			continue
		}
		switch s.Kind {
		case Jump, Goto, Count:
			if s.Name != "" {
				s.Name = withFamily(family, s.Name)
			}
		}
		if s.Set != "" {
			s.Set = withFamily(family, s.Set)
		}
		if s.Map != nil {
			to := map[string]string{}
			for value, verdict := range s.Map {
				to[value] = eachInFamily([]string{verdict}, family)[0]
			}
			s.Map = to
		}
		out = append(out, s)
	}
	return out, true
}

// fits says whether a packet of the family may pass a statement.
func (s Statement) fits(family int) bool {
	switch s.Kind {
	case DNAT, SNAT, DNATPrefix, SNATPrefix:
		if s.Name != ipOf(family) {
			return false
		}
	}
	if s.asksFamily() {
		return slices.Contains(s.Values, nfproto[family]) == (s.Op == "==")
	}
	for part := range strings.SplitSeq(s.Field, " . ") {
		if first, _, _ := strings.Cut(strings.TrimPrefix(part, "ct original "), " "); slices.Contains(otherWords[family], first) {
			return false
		}
	}
	return true
}

func (s Statement) asksFamily() bool {
	return s.Kind == Match && s.Field == "meta nfproto" && s.Set == ""
}

// eachInFamily are verdicts that lead to the chains in the table of a family.
func eachInFamily(verdicts []string, family int) []string {
	out := slices.Clone(verdicts)
	for i, v := range out {
		if verb, chain, leads := strings.Cut(v, " "); leads {
			out[i] = verb + " " + withFamily(family, chain)
		}
	}
	return out
}

// moveCounters puts the counters of NAT into the tables whose rules count them.
func (l *lowering) moveCounters(before map[string]bool) {
	t := l.tree
	now := t.used()
	var out []Counter
	for _, c := range t.Counters {
		if !before["counter "+c.Name] || now["counter "+c.Name] {
			out = append(out, c)
		}
		for _, f := range families {
			if own := c; now["counter "+withFamily(f, c.Name)] {
				own.Name = withFamily(f, c.Name)
				out = append(out, own)
			}
		}
	}
	t.Counters = out
	sorting.By(t.Counters, func(a, b Counter) int { return strings.Compare(a.Name, b.Name) })
}
