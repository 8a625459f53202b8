package program

import (
	"math"
	"slices"
	"time"
)

// Before is the condition that a packet passes before a moment, to the second.
func Before(t time.Time) Condition {
	return Condition{Field: Time, Numbers: []NumberRange{{To: uint64(max(t.Unix(), 1)) - 1}}} //nolint:gosec // positive
}

// At is the program as it is at a moment, for questions that are about then: rules that
// hold at other times are left out, and the others hold whenever they are asked. Where no
// rule asks for the time it is the program itself.
func (p *Program) At(t time.Time) *Program {
	timed := func(r Rule) bool {
		return slices.ContainsFunc(r.Match, func(c Condition) bool { return c.Field == Time })
	}
	if !slices.ContainsFunc(p.Chains, func(c Chain) bool { return slices.ContainsFunc(c.Rules, timed) }) {
		return p
	}
	now := uint64(min(max(t.Unix(), 0), math.MaxUint32)) //nolint:gosec // positive
	out := *p
	out.Chains = slices.Clone(p.Chains)
	for i := range out.Chains {
		var rules []Rule
		for _, r := range out.Chains[i].Rules {
			holds := true
			if timed(r) {
				var rest []Condition
				for _, c := range r.Match {
					if c.Field != Time {
						rest = append(rest, c)
						continue
					}
					in := slices.ContainsFunc(c.Numbers, func(n NumberRange) bool { return n.From <= now && now <= n.To })
					holds = holds && in != c.Not
				}
				r.Match = rest
			}
			if holds {
				rules = append(rules, r)
			}
		}
		out.Chains[i].Rules = rules
	}
	return &out
}
