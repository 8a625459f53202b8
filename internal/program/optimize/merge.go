package optimize

import (
	"slices"

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
					c.Addresses = mergeRanges(slices.Clone(c.Addresses), true)
				}
			}
		}
	}
}

func mergeElements(set *program.Set) {
	var ranges []program.AddressRange
	for _, e := range set.Elements {
		if !e.Parts[0].Addresses.From.IsValid() {
			return // names or numbers
		}
		r := e.Parts[0].Addresses
		r.Origin = e.Origin
		ranges = append(ranges, r)
	}
	if len(ranges) < 2 {
		return
	}
	set.Elements = set.Elements[:0]
	for _, r := range mergeRanges(ranges, false) {
		set.Elements = append(set.Elements, program.Element{Parts: []program.Value{{Addresses: program.AddressRange{From: r.From, To: r.To}}}, Origin: r.Origin})
	}
}

func mergeRanges(in []program.AddressRange, adjacent bool) []program.AddressRange {
	slices.SortStableFunc(in, func(a, b program.AddressRange) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return b.To.Compare(a.To)
	})
	out := in[:1]
	for _, r := range in[1:] {
		last := &out[len(out)-1]
		same := last.To.Is4() == r.From.Is4()
		overlaps := same && r.From.Compare(last.To) <= 0
		touches := same && adjacent && last.To.Next() == r.From
		if !overlaps && !touches {
			out = append(out, r)
			continue
		}
		if r.To.Compare(last.To) > 0 {
			last.To = r.To
		}
	}
	return out
}
