package optimize

import (
	"slices"

	"sluice/internal/base/sorting"
)

// cover is the values that intervals have together. Those that meet become one.
type cover struct {
	sorted []interval // apart
	fresh  []interval // the newest, not sorted in yet
}

func (c *cover) add(i interval) {
	if c.whole(i) {
		return
	}
	c.fresh = append(c.fresh, i)
	if len(c.fresh) < freshSpans+len(c.sorted)/freshSpans {
		return
	}
	from := func(a, b interval) int { return a.from.compare(b.from) }
	sorting.By(c.fresh, from)
	out := make([]interval, 0, len(c.sorted)+len(c.fresh))
	a, b := c.sorted, c.fresh
	for len(a)+len(b) > 0 {
		var next interval
		if len(b) == 0 || len(a) > 0 && from(a[0], b[0]) <= 0 {
			next, a = a[0], a[1:]
		} else {
			next, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && next.from.compare(out[n-1].to) <= 0 {
			if next.to.compare(out[n-1].to) > 0 {
				out[n-1].to = next.to
			}
			continue
		}
		out = append(out, next)
	}
	c.sorted, c.fresh = out, c.fresh[:0]
}

// first is the first of the sorted ones that does not end before a point.
func (c *cover) first(p point) int {
	at, _ := slices.BinarySearchFunc(c.sorted, p, func(x interval, p point) int { return x.to.compare(p) })
	return at
}

// whole says that one interval has all of another; false does not say the
// opposite.
func (c *cover) whole(i interval) bool {
	at := c.first(i.from)
	return at < len(c.sorted) && c.sorted[at].from.compare(i.from) <= 0 && c.sorted[at].to.compare(i.to) >= 0
}

func (c *cover) meets(i interval) bool {
	if at := c.first(i.from); at < len(c.sorted) && c.sorted[at].meets(i) {
		return true
	}
	return slices.ContainsFunc(c.fresh, i.meets)
}
