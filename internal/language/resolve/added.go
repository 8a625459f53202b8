package resolve

import (
	"maps"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/language/policy"
)

// add puts in what commands have added, beside what the policy has, which does not end.
func (s *Set) add(list []policy.Addition) {
	if len(list) == 0 {
		return
	}
	var all []addrset.Ending
	for r := range s.Addresses.Each() {
		all = append(all, addrset.Ending{Range: r})
	}
	for _, a := range list {
		all = append(all, addrset.Ending{Range: a.What, Until: a.Until})
	}
	sorting.By(all, func(a, b addrset.Ending) int { return a.Range.From.Compare(b.Range.From) })
	var b addrset.Builder
	from6 := 0
	for from6 < len(all) && all[from6].Range.From.Is4() {
		from6++
	}
	for _, family := range [][]addrset.Ending{all[:from6], all[from6:]} {
		for _, e := range addrset.Pieces(family) {
			b.AddRange(e.Range)
			if !e.Until.IsZero() {
				s.Ends = append(s.Ends, e)
			}
		}
	}
	s.Addresses = b.Set()
}

// Unexcepted is the resolved policy without what commands let in or added to sets; the
// same one where they did not.
func (r *Resolved) Unexcepted() *Resolved {
	own := r.Policy.Unexcepted()
	if own == r.Policy {
		return r
	}
	out := *r
	out.Policy, out.Sets = own, maps.Clone(r.Sets)
	for _, s := range own.Sets {
		if set := r.Sets[s.Name]; s.Living && set != nil {
			bare := *set
			bare.Ends = nil
			var b addrset.Builder
			for _, e := range s.Elements {
				b.AddRange(e.Range)
			}
			bare.Addresses = b.Set()
			out.Sets[s.Name] = &bare
		}
	}
	return &out
}
