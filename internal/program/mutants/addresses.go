package mutants

import (
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// widenPrefix takes the length of one prefix for one bit less: of a rule of the
// policy, or of a set that such a rule asks.
func widenPrefix(p *program.Program) bool {
	p.Sets = slices.Clone(p.Sets)
	for _, c := range filters(p) {
		c.Rules = slices.Clone(c.Rules)
		for i := range c.Rules {
			r := &c.Rules[i]
			if !policyRule(r) || verdict(r) == falls(p, c) {
				continue
			}
			for j := range r.Match {
				if r.Match[j].Set != "" {
					if set := p.Set(r.Match[j].Set); set != nil && widenSet(set) {
						return true
					}
					continue
				}
				if wider, ok := widen(addrset.Of(r.Match[j].Addresses...)); ok {
					r.Match = slices.Clone(r.Match)
					r.Match[j].Addresses = wider.Ranges()
					return true
				}
			}
		}
	}
	return false
}

// widenSet widens an element of a static set. Of several keys it takes one whose
// wider range meets no other element, since elements are disjoint.
func widenSet(s *program.Set) bool {
	if s.Life == program.Dynamic || s.Life == program.Followed {
		return false
	}
	if wider, ok := widen(s.Addresses); ok {
		s.Addresses = wider
		return true
	}
	for at, e := range s.Elements {
		for part, v := range e.Parts {
			if !v.Addresses.From.IsValid() {
				continue
			}
			wider, ok := widen(addrset.Of(v.Addresses))
			if !ok {
				continue
			}
			parts := slices.Clone(e.Parts)
			parts[part].Addresses = wider.Ranges()[0]
			if slices.ContainsFunc(slices.Delete(slices.Clone(s.Elements), at, at+1), func(o program.Element) bool { return meet(parts, o.Parts) }) {
				continue
			}
			s.Elements = slices.Clone(s.Elements)
			s.Elements[at].Parts = parts
			return true
		}
	}
	return false
}

// widen widens the first prefix of a set that becomes more by it.
func widen(s addrset.Set) (addrset.Set, bool) {
	for prefix := range s.EachPrefix() {
		if prefix.Bits() == 0 {
			continue
		}
		wider := addrset.FromPrefixes(netip.PrefixFrom(prefix.Addr(), prefix.Bits()-1).Masked())
		if !s.ContainsSet(wider) {
			return s.Union(wider), true
		}
	}
	return s, false
}

// forgetIPv6 leaves what the policy says of IPv6 addresses out of sets and rules,
// and where it says nothing about them, makes its rules such of IPv4.
func forgetIPv6(p *program.Program) bool {
	changed := false
	p.Sets = slices.Clone(p.Sets)
	empty := map[string]bool{}
	for i := range p.Sets {
		s := &p.Sets[i]
		if s.Life == program.Dynamic || s.Life == program.Followed {
			continue
		}
		elements := slices.DeleteFunc(slices.Clone(s.Elements), func(e program.Element) bool {
			return slices.ContainsFunc(e.Parts, func(v program.Value) bool { return v.Addresses.From.Is6() })
		})
		if !s.Addresses.Has6() && len(elements) == len(s.Elements) {
			continue
		}
		changed = true
		empty[s.ID] = !s.Addresses.Has4() && len(elements) == 0
		if !empty[s.ID] {
			s.Addresses, s.Elements = s.Addresses.Only4(), elements
		}
	}
	for i := range p.Chains {
		c := &p.Chains[i]
		rules := make([]program.Rule, 0, len(c.Rules))
		for _, r := range c.Rules {
			kept, ok := only4(r, empty)
			rules = append(rules, kept...)
			changed = changed || !ok
		}
		c.Rules = rules
	}
	return changed || onlyFamily4(p)
}

// only4 is a rule of the policy without IPv6, none where nothing of it is left; ok
// says that it is the same as before.
func only4(r program.Rule, empty map[string]bool) (out []program.Rule, ok bool) {
	for _, a := range r.Actions {
		if empty[program.EffectOf(a).Map] {
			return nil, false
		}
	}
	ok = true
	match := make([]program.Condition, 0, len(r.Match))
	for _, m := range r.Match {
		gone := empty[m.Set]
		if policyRule(&r) && slices.ContainsFunc(m.Addresses, func(a addrset.Range) bool { return a.From.Is6() }) {
			ok = false
			m.Addresses = slices.DeleteFunc(slices.Clone(m.Addresses), func(a addrset.Range) bool { return a.From.Is6() })
			gone = len(m.Addresses) == 0
		}
		switch {
		case !gone:
			match = append(match, m)
		case !m.Not:
			return nil, false
		}
	}
	r.Match = match
	return []program.Rule{r}, ok
}

func onlyFamily4(p *program.Program) bool {
	changed := false
	for _, c := range filters(p) {
		rules := slices.Clone(c.Rules)
		for i := range rules {
			r := &rules[i]
			v6 := slices.ContainsFunc(r.Match, func(m program.Condition) bool {
				return m.Field == program.Family || m.Field == program.ICMPv6Type || m.Field == program.ICMPv6Code || m.Field == program.HopLimit
			})
			if !policyRule(r) || v6 {
				continue
			}
			r.Match = append([]program.Condition{{Field: program.Family, Numbers: []program.NumberRange{{From: 4, To: 4}}}}, r.Match...)
			changed = true
		}
		c.Rules = rules
	}
	return changed
}
