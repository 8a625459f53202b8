package optimize

import (
	"slices"

	"sluice/internal/program"
)

// mergePrefixes sorts the elements of address sets and joins those that touch
// or overlap. Elements that are counted apart are joined only where they
// overlap.
func mergePrefixes(p *program.Program) {
	for i := range p.Sets {
		set := &p.Sets[i]
		if len(set.Key) == 1 && len(set.Addresses) > 1 {
			set.Addresses = mergeRanges(set.Addresses, !set.Counters)
		}
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
