package bans

import (
	"slices"
	"time"

	"sluice/internal/base/addrset"
)

// Ban is one address, prefix or range that a command banned.
type Ban struct {
	What   addrset.Range
	Since  time.Time
	Until  time.Time // zero: until it is lifted
	By     Author
	Reason string
}

// Over says whether the time of the ban is up.
func (b Ban) Over(now time.Time) bool { return !b.Until.IsZero() && !b.Until.After(now) }

// Single says that it is one address.
func (b Ban) Single() bool { return b.What.From == b.What.To }

// Live is the bans whose time is not up.
func Live(list []Ban, now time.Time) []Ban {
	return slices.DeleteFunc(slices.Clone(list), func(b Ban) bool { return b.Over(now) })
}

// Piece is a range that is banned until a time, zero: until it is lifted.
type Piece struct {
	addrset.Range
	Until time.Time
}

// Pieces cuts bans of one family, sorted, into disjoint ranges, each banned
// until the last ban that covers it is over. Neighbours with the same end are
// one.
func Pieces(list []Ban) []Piece {
	var out []Piece
	var open []Ban // those that cover the place that is looked at
	emit := func(r addrset.Range) {
		until := open[0].Until
		for _, b := range open {
			if b.Until.IsZero() || !until.IsZero() && b.Until.After(until) {
				until = b.Until
			}
		}
		if n := len(out); n > 0 && out[n-1].Until.Equal(until) && out[n-1].To.Next() == r.From {
			out[n-1].To = r.To
			return
		}
		out = append(out, Piece{r, until})
	}
	for i := 0; i < len(list) || len(open) > 0; {
		if len(open) == 0 {
			open = append(open, list[i])
			i++
		}
		at := open[0].What.From
		for _, b := range open {
			if b.What.From.Compare(at) > 0 {
				at = b.What.From
			}
		}
		for i < len(list) && list[i].What.From == at {
			open = append(open, list[i])
			i++
		}
		// From at on the open bans hold, up to the first end or the next begin.
		end := open[0].What.To
		for _, b := range open {
			if b.What.To.Compare(end) < 0 {
				end = b.What.To
			}
		}
		if i < len(list) && list[i].What.From.Compare(end) <= 0 {
			end = list[i].What.From.Prev()
		}
		emit(addrset.Range{From: at, To: end})
		next := end.Next()
		kept := open[:0]
		for _, b := range open {
			if next.IsValid() && b.What.To.Compare(end) > 0 {
				b.What.From = next
				kept = append(kept, b)
			}
		}
		open = kept
	}
	return out
}
