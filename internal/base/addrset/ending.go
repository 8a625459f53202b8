package addrset

import (
	"time"
)

// Ending is a range that ends by itself.
type Ending struct {
	Range Range
	Until time.Time // zero: it does not
}

// Pieces cuts ranges of one family, sorted by their first addresses, into disjoint ones,
// each of which ends with the last that covers it. Neighbours with the same end are one.
func Pieces(list []Ending) []Ending {
	var out []Ending
	var open []Ending // those that cover the place that is looked at
	emit := func(r Range) {
		until := open[0].Until
		for _, e := range open {
			if e.Until.IsZero() || !until.IsZero() && e.Until.After(until) {
				until = e.Until
			}
		}
		if n := len(out); n > 0 && out[n-1].Until.Equal(until) && out[n-1].Range.To.Next() == r.From {
			out[n-1].Range.To = r.To
			return
		}
		out = append(out, Ending{r, until})
	}
	for i := 0; i < len(list) || len(open) > 0; {
		if len(open) == 0 {
			open = append(open, list[i])
			i++
		}
		at := open[0].Range.From
		for _, e := range open {
			if e.Range.From.Compare(at) > 0 {
				at = e.Range.From
			}
		}
		for i < len(list) && list[i].Range.From == at {
			open = append(open, list[i])
			i++
		}
		// From at on the open ones hold, up to the first end or the next begin.
		end := open[0].Range.To
		for _, e := range open {
			if e.Range.To.Compare(end) < 0 {
				end = e.Range.To
			}
		}
		if i < len(list) && list[i].Range.From.Compare(end) <= 0 {
			end = list[i].Range.From.Prev()
		}
		emit(Range{From: at, To: end})
		next := end.Next()
		kept := open[:0]
		for _, e := range open {
			if next.IsValid() && e.Range.To.Compare(end) > 0 {
				e.Range.From = next
				kept = append(kept, e)
			}
		}
		open = kept
	}
	return out
}
