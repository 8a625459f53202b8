package optimize

import (
	"fmt"
	"slices"

	"sluice/internal/program"
)

// mostRounds bounds how often a chain is gathered again without the groups that
// are too small.
const mostRounds = 4

// mergeRules merges, in every chain, the groups of rules that kind wants, and
// says how many rules became how many.
func mergeRules(w *work, kind func(merged) bool) {
	taken := map[string]bool{}
	for i := range w.Sets {
		taken[w.Sets[i].ID] = true
	}
	known := w.facts()
	for i := range w.Chains {
		known.chainEffect(w.Chains[i].Name) // before any of them is another one
	}
	for i := range w.Chains {
		chain := &w.Chains[i]
		if len(chain.Rules) < fewestRules {
			continue
		}
		m := &merger{facts: known, alike: map[string]effect{}, counters: !w.options.NoElementCounters}
		rules := make([]*candidate, len(chain.Rules))
		for j := range chain.Rules {
			rules[j] = m.candidate(&chain.Rules[j])
		}
		if !m.settle(rules) {
			continue
		}
		var out []program.Rule
		before, did := len(chain.Rules), false
		for _, x := range m.items {
			if how := x.differ(); len(x.members) >= fewestRules && len(how.fields) > 0 && kind(how) && x.fits(how) {
				sets := len(w.Sets)
				e := &emitter{merger: m, program: w.Program, chain: chain.Name, taken: taken, x: x}
				e.emit(how)
				if len(e.rules) < len(x.members) {
					out, did = append(out, e.rules...), true
					continue
				}
				w.Sets = w.Sets[:sets]
			}
			for _, c := range x.members {
				out = append(out, *c.rule)
			}
		}
		if did {
			chain.Rules = out
			w.say(fmt.Sprintf("chain %s: %d rules became %d", chain.Name, before, len(out)))
		}
	}
}

// settle gathers until every group is worth a set, or stands alone; false where
// there is none.
func (m *merger) settle(rules []*candidate) bool {
	lone := map[*candidate]bool{}
	for range mostRounds {
		m.gather(rules, lone)
		small, large := 0, 0
		for _, x := range m.items {
			if x.in == nil {
				continue
			}
			if len(x.members) >= fewestRules && len(x.differ().fields) > 0 {
				large++
				continue
			}
			small++
			for _, c := range x.members {
				lone[c] = true
			}
		}
		switch {
		case large == 0:
			return false
		case small == 0:
			return true
		}
	}
	return true
}

// fits says whether the kernel takes a key of the fields in which members
// differ.
func (x *item) fits(how merged) bool {
	bytes := 0
	for _, i := range how.fields {
		f := x.members[0].fields[i]
		switch {
		case f == program.InInterface || f == program.OutInterface:
			bytes += 16
		case isAddress(f):
			if slices.ContainsFunc(x.members, func(c *candidate) bool {
				return slices.ContainsFunc(c.values[i], func(v interval) bool { return v.from.kind == anAddress6 })
			}) {
				bytes += 16
			} else {
				bytes += 4
			}
		default:
			bytes += 4
		}
	}
	return bytes <= keyBytes
}
