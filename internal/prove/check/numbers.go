package check

import (
	"slices"

	"sluice/internal/base/sorting"
)

// numbers is a set of numbers: sorted, disjoint ranges that do not touch. None
// of the functions changes its arguments.
type numbers []span

// span is inclusive.
type span struct{ from, to uint64 }

// numbersOf sorts and joins spans.
func numbersOf(spans ...span) numbers {
	spans = slices.Clone(spans)
	sorting.By(spans, func(a, b span) int {
		switch {
		case a.from < b.from:
			return -1
		case a.from > b.from:
			return 1
		}
		return 0
	})
	var out numbers
	for _, s := range spans {
		if n := len(out); n > 0 && s.from <= out[n-1].to+1 {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

func one(n uint64) numbers { return numbers{{n, n}} }

func (n numbers) overlaps(o numbers) bool {
	if n.same(o) {
		return true
	}
	for i, j := 0, 0; i < len(n) && j < len(o); {
		switch {
		case n[i].to < o[j].from:
			i++
		case o[j].to < n[i].from:
			j++
		default:
			return true
		}
	}
	return false
}

// same says that both are one slice, as those of a universe are; false does not
// say the opposite.
func (n numbers) same(o numbers) bool { return len(n) > 0 && len(n) == len(o) && &n[0] == &o[0] }

func (n numbers) intersect(o numbers) numbers {
	switch {
	case n.same(o):
		return n
	case n.covers(o):
		return o
	case o.covers(n):
		return n
	}
	var out numbers
	for i, j := 0, 0; i < len(n) && j < len(o); {
		if s := (span{max(n[i].from, o[j].from), min(n[i].to, o[j].to)}); s.from <= s.to {
			out = append(out, s)
		}
		if n[i].to < o[j].to {
			i++
		} else {
			j++
		}
	}
	return out
}

// covers says whether one range of n has all of o; false does not say the
// opposite.
func (n numbers) covers(o numbers) bool {
	return len(n) == 1 && len(o) > 0 && n[0].from <= o[0].from && o[len(o)-1].to <= n[0].to
}

func (n numbers) minus(o numbers) numbers {
	if n.same(o) || o.covers(n) {
		return nil
	}
	out := make(numbers, 0, len(n)+1)
	j := 0
	for _, s := range n {
		for j < len(o) && o[j].to < s.from {
			j++
		}
		from, open := s.from, true
		for k := j; k < len(o) && o[k].from <= s.to; k++ {
			if o[k].from > from {
				out = append(out, span{from, o[k].from - 1})
			}
			if o[k].to >= s.to {
				open = false
				break
			}
			from = max(from, o[k].to+1)
		}
		if open {
			out = append(out, span{from, s.to})
		}
	}
	return out
}
