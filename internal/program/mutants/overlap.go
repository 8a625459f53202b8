package mutants

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// meet says whether two keys of a set's elements have a value in common.
func meet(a, b []program.Value) bool {
	for i := range a {
		switch {
		case a[i].Addresses.From.IsValid():
			if !addrset.Of(a[i].Addresses).Overlaps(addrset.Of(b[i].Addresses)) {
				return false
			}
		case a[i].Name != "":
			if a[i].Name != b[i].Name {
				return false
			}
		case a[i].Numbers.From > b[i].Numbers.To || b[i].Numbers.From > a[i].Numbers.To:
			return false
		}
	}
	return true
}

// overlap says whether a packet can match both rules. Conditions that it cannot
// weigh (of several keys, of other kinds than numbers, addresses and names of
// interfaces, negated ones of names) it takes to leave nothing in common.
func overlap(p *program.Program, a, b *program.Rule) bool {
	for _, r := range []*program.Rule{a, b} {
		for i := range r.Match {
			if !weighable(p, &r.Match[i]) {
				return false
			}
		}
	}
	fields := map[program.Field]bool{}
	for _, m := range slices.Concat(a.Match, b.Match) {
		fields[m.Field] = true
	}
	for f := range fields {
		if !common(p, f, slices.Concat(a.Match, b.Match)) {
			return false
		}
	}
	return familiesMeet(p, slices.Concat(a.Match, b.Match)) && protocolsMeet(slices.Concat(a.Match, b.Match))
}

func weighable(p *program.Program, m *program.Condition) bool {
	switch {
	case m.Mask != 0 || len(m.SetKey) > 1 || m.Text != "":
		return false
	case m.Set != "":
		s := p.Set(m.Set)
		return s != nil && s.Life == program.Static && len(s.Elements) == 0
	case len(m.Names) > 0:
		return !m.Not && len(m.Names) == 1
	}
	return true
}

// common says whether one value of the field is in all conditions on it.
func common(p *program.Program, f program.Field, match []program.Condition) bool {
	at := addrset.All()
	isAddress := false
	numbers := []program.NumberRange{{From: 0, To: ^uint64(0)}}
	name := ""
	for _, m := range match {
		if m.Field != f {
			continue
		}
		switch {
		case m.Set != "" || len(m.Addresses) > 0:
			isAddress = true
			s := addrset.Of(m.Addresses...)
			if m.Set != "" {
				s = p.Set(m.Set).Addresses
			}
			if m.Not {
				s = s.Complement()
			}
			at = at.Intersect(s)
		case len(m.Names) == 1:
			if name != "" && !alike(name, m.Names[0]) {
				return false
			}
			name = m.Names[0]
		default:
			numbers = both(numbers, m.Numbers, m.Not)
		}
	}
	return !(isAddress && at.IsEmpty()) && len(numbers) > 0
}

// alike says whether two patterns of interfaces have a name in common.
func alike(a, b string) bool {
	beginA, wildA := strings.CutSuffix(a, "*")
	beginB, wildB := strings.CutSuffix(b, "*")
	return a == b || wildA && strings.HasPrefix(b, beginA) || wildB && strings.HasPrefix(a, beginB)
}

// both is what two lists of ranges have in common; not turns the second round.
func both(a, b []program.NumberRange, not bool) (out []program.NumberRange) {
	if not {
		b = slices.Clone(b)
		sorting.By(b, func(x, y program.NumberRange) int {
			if x.From < y.From {
				return -1
			}
			return 1
		})
		var turned []program.NumberRange
		from := uint64(0)
		for _, r := range b {
			if r.From > from {
				turned = append(turned, program.NumberRange{From: from, To: r.From - 1})
			}
			from = max(from, r.To+1)
		}
		b = append(turned, program.NumberRange{From: from, To: ^uint64(0)})
	}
	for _, x := range a {
		for _, y := range b {
			if from, to := max(x.From, y.From), min(x.To, y.To); from <= to {
				out = append(out, program.NumberRange{From: from, To: to})
			}
		}
	}
	return out
}

// familiesMeet holds addresses and the family to one another.
func familiesMeet(p *program.Program, match []program.Condition) bool {
	four, six := true, true
	for _, m := range match {
		switch {
		case m.Field == program.Family && len(m.Numbers) > 0:
			is4 := slices.ContainsFunc(m.Numbers, func(r program.NumberRange) bool { return r.From <= 4 && r.To >= 4 }) != m.Not
			is6 := slices.ContainsFunc(m.Numbers, func(r program.NumberRange) bool { return r.From <= 6 && r.To >= 6 }) != m.Not
			four, six = four && is4, six && is6
		case m.Not:
		case m.Set != "":
			s := p.Set(m.Set).Addresses
			four, six = four && s.Has4(), six && s.Has6()
		case len(m.Addresses) > 0:
			s := addrset.Of(m.Addresses...)
			four, six = four && s.Has4(), six && s.Has6()
		}
	}
	return four || six
}

// protocolsMeet says no where a rule asks for a protocol that the other's fields
// do not go with.
func protocolsMeet(match []program.Condition) bool {
	icmp, icmp6, ports := false, false, false
	for _, m := range match {
		icmp = icmp || m.Field == program.ICMPType || m.Field == program.ICMPCode
		icmp6 = icmp6 || m.Field == program.ICMPv6Type || m.Field == program.ICMPv6Code
		ports = ports || m.Field == program.Port || m.Field == program.SourcePort || m.Field == program.TCPFlags
	}
	n := 0
	for _, is := range []bool{icmp, icmp6, ports} {
		if is {
			n++
		}
	}
	return n < 2
}

// covers says that one of the rules before takes all that both rules have in
// common, so that their order does not matter. It knows the plain case alone.
func covers(p *program.Program, before []program.Rule, a, b *program.Rule) bool {
	both := slices.Concat(a.Match, b.Match)
	return slices.ContainsFunc(before, func(r program.Rule) bool {
		if verdict(&r) == "" || gated(&r) {
			return false
		}
		for i := range r.Match {
			want := &r.Match[i]
			if !slices.ContainsFunc(both, func(m program.Condition) bool { return implies(p, &m, want) }) {
				return false
			}
		}
		return true
	})
}

// implies says that what meets m meets want.
func implies(p *program.Program, m, want *program.Condition) bool {
	if m.Field != want.Field || m.Not != want.Not || m.Mask != want.Mask || m.Text != "" || want.Text != "" {
		return false
	}
	set := func(c *program.Condition) (addrset.Set, bool) {
		if c.Set == "" {
			return addrset.Of(c.Addresses...), len(c.Addresses) > 0
		}
		s := p.Set(c.Set)
		return s.Addresses, s.Life == program.Static && len(c.SetKey) == 0 && len(s.Elements) == 0
	}
	small, isSet := set(m)
	large, isSetToo := set(want)
	switch {
	case m.Not:
		return m.String() == want.String()
	case isSet && isSetToo:
		return large.ContainsSet(small)
	case m.Set != "" || want.Set != "":
		return false
	case len(m.Numbers) > 0:
		return !slices.ContainsFunc(m.Numbers, func(x program.NumberRange) bool {
			return !slices.ContainsFunc(want.Numbers, func(y program.NumberRange) bool { return y.From <= x.From && x.To <= y.To })
		})
	}
	return m.String() == want.String()
}
