package optimize

import (
	"cmp"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// mergePrefixes joins the addresses of conditions that touch or overlap, and
// sorts the elements that sets count apart, joining those that overlap. Plain
// sets of addresses are minimal by themselves.
func mergePrefixes(p *program.Program) {
	for i := range p.Sets {
		if set := &p.Sets[i]; set.Counters && !set.Verdicts && len(set.Key) == 1 {
			mergeElements(set)
		}
	}
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			for k := range p.Chains[i].Rules[j].Match {
				if c := &p.Chains[i].Rules[j].Match[k]; len(c.Addresses) > 1 {
					c.Addresses = addrset.Of(c.Addresses...).Ranges()
				}
			}
		}
	}
}

// mergeElements sorts the elements of a set that counts, and joins those that overlap.
func mergeElements(set *program.Set) {
	of := func(e *program.Element) *addrset.Range { return &e.Parts[0].Addresses }
	if len(set.Elements) < 2 || slices.ContainsFunc(set.Elements, func(e program.Element) bool { return !of(&e).From.IsValid() }) {
		return // alone, or names or numbers
	}
	sorted := slices.Clone(set.Elements)
	sorting.StableBy(sorted, func(a, b program.Element) int {
		return cmp.Or(of(&a).From.Compare(of(&b).From), of(&b).To.Compare(of(&a).To))
	})
	set.Elements = set.Elements[:0]
	for _, e := range sorted {
		r := *of(&e)
		if n := len(set.Elements); n > 0 && r.From.Compare(of(&set.Elements[n-1]).To) <= 0 {
			if last := of(&set.Elements[n-1]); r.To.Compare(last.To) > 0 {
				last.To = r.To
			}
			continue
		}
		set.Elements = append(set.Elements, program.Element{Parts: []program.Value{{Addresses: r}}, Origin: e.Origin})
	}
}
