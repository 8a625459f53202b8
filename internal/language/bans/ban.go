package bans

import (
	"slices"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
)

// Ban is one address, prefix or range that a command banned, or a country, or what the fleet
// of the host did.
type Ban struct {
	What    addrset.Range
	Country *Country // in place of What
	ID      string   // of a ban of the fleet, without blanks; "": a command's
	// Incarnation is that of the fleet's database, which the ID is of.
	Incarnation int64
	Since       time.Time
	Until       time.Time // zero: until it is lifted
	By          Author
	Reason      string
}

// Over says whether the time of the ban is up.
func (b Ban) Over(now time.Time) bool { return !b.Until.IsZero() && !b.Until.After(now) }

// Single says that it is one address.
func (b Ban) Single() bool { return b.Country == nil && b.What.From == b.What.To }

// Name is what a command calls it by.
func (b Ban) Name() string {
	if b.Country != nil {
		return b.Country.Code
	}
	return b.What.String()
}

// Set is what it bans.
func (b Ban) Set() addrset.Set {
	if b.Country != nil {
		return b.Country.Set
	}
	return addrset.Of(b.What)
}

// Country is the addresses of a country when it was banned.
type Country struct {
	Code string
	Data time.Time // of the country data; zero: it is not known
	Set  addrset.Set
}

// Wide is what is banned by ranges: bans that are of no single address, and what countries
// have, sorted.
func (l *List) Wide() []Ban {
	var out []Ban
	for _, b := range l.Bans {
		if !b.Single() {
			out = append(out, b)
		}
	}
	for _, b := range l.Countries {
		of := b.Country.Set
		b.Country = nil
		for r := range of.Each() {
			b.What = r
			out = append(out, b)
		}
	}
	if len(l.Countries) > 0 {
		sorting.By(out, func(a, b Ban) int { return a.What.Compare(b.What) })
	}
	return out
}

// place is what an edit is of: the bans of one range by commands and by the fleet are next to
// each other, each by its ID.
type place struct {
	what addrset.Range
	id   string
}

func (p place) compare(o place) int {
	if c := p.what.Compare(o.what); c != 0 {
		return c
	}
	return strings.Compare(p.id, o.id)
}

// Ends are how long bans hold.
func Ends(list []Ban) []time.Time {
	out := make([]time.Time, len(list))
	for i, b := range list {
		out[i] = b.Until
	}
	return out
}

// Latest is how long bans that end so hold together, zero being until they are lifted; false
// where all of them are over.
func Latest(now time.Time, ends []time.Time) (until time.Time, holds bool) {
	for _, end := range ends {
		switch {
		case end.IsZero():
			return end, true
		case end.After(now) && end.After(until):
			until, holds = end, true
		}
	}
	return until, holds
}

// Ends are those of the bans of exactly this range, by whomever.
func (l *List) Ends(r addrset.Range) []time.Time {
	from, _ := slices.BinarySearchFunc(l.Bans, r, func(b Ban, r addrset.Range) int { return b.What.Compare(r) })
	to := from
	for to < len(l.Bans) && l.Bans[to].What == r {
		to++
	}
	return Ends(l.Bans[from:to])
}

// Live is the list without the bans whose time is up.
func (l *List) Live(now time.Time) *List {
	out := *l
	out.Bans, out.Countries = Live(l.Bans, now), Live(l.Countries, now)
	return &out
}

// All is every ban of the list.
func (l *List) All() []Ban { return slices.Concat(l.Bans, l.Countries) }

// Live is the bans whose time is not up.
func Live(list []Ban, now time.Time) []Ban {
	return slices.DeleteFunc(slices.Clone(list), func(b Ban) bool { return b.Over(now) })
}

// Pieces cuts bans of one family, sorted, into disjoint ranges, each banned until the last
// ban that covers it is over.
func Pieces(list []Ban) []addrset.Ending {
	all := make([]addrset.Ending, len(list))
	for i, b := range list {
		all[i] = addrset.Ending{Range: b.What, Until: b.Until}
	}
	return addrset.Pieces(all)
}
