package addrset

import (
	"slices"
	"sort"

	"sluice/internal/base/sorting"
)

// Nest finds which of many ranges, that may overlap and lie in one another, contain a range
// or lie in it, in the logarithm of their number.
type Nest struct {
	ranges []Range // by where they begin
	wide   []int   // at each place, which of those up to it reaches furthest
	narrow []int   // at each place, which of those from it on ends first
}

// NestOf sorts a list that is the caller's still.
func NestOf(ranges []Range) Nest {
	n := Nest{ranges: slices.Clone(ranges)}
	sorting.By(n.ranges, Range.Compare)
	n.wide, n.narrow = make([]int, len(ranges)), make([]int, len(ranges))
	for i := range n.ranges {
		n.wide[i] = i
		if i > 0 && n.ranges[n.wide[i-1]].To.Compare(n.ranges[i].To) >= 0 {
			n.wide[i] = n.wide[i-1]
		}
	}
	for i := len(n.ranges) - 1; i >= 0; i-- {
		n.narrow[i] = i
		if i+1 < len(n.ranges) && n.ranges[n.narrow[i+1]].To.Compare(n.ranges[i].To) < 0 {
			n.narrow[i] = n.narrow[i+1]
		}
	}
	return n
}

// Around is the one that contains all of a range and reaches furthest.
func (n Nest) Around(r Range) (Range, bool) {
	i := sort.Search(len(n.ranges), func(i int) bool { return n.ranges[i].From.Compare(r.From) > 0 })
	if i == 0 {
		return Range{}, false
	}
	found := n.ranges[n.wide[i-1]]
	return found, found.ContainsRange(r)
}

// Within says whether any of them lies in a range.
func (n Nest) Within(r Range) bool {
	i := sort.Search(len(n.ranges), func(i int) bool { return n.ranges[i].From.Compare(r.From) >= 0 })
	return i < len(n.ranges) && r.ContainsRange(n.ranges[n.narrow[i]])
}
