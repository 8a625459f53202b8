package query

import (
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/geo"
	"sluice/internal/prove/reach"
)

// Atlas is the country data in the order of addresses. Maps of several policies share one. It
// is safe for concurrent use.
type Atlas struct {
	publisher string
	date      time.Time
	codes     []string       // the first is "", of the addresses of no country
	rows      [2][]stretch   // IPv4, IPv6: from each to the next one
	places    map[string]int // by code
}

// stretch is addresses of one place, up to the next stretch.
type stretch struct {
	from  addrset.Number
	place int
}

// NewAtlas reads country data. What registries write for a region is no country.
func NewAtlas(d *geo.Database) (*Atlas, error) {
	info := d.Info()
	a := &Atlas{publisher: info.Source, date: info.Date, codes: []string{""}, places: map[string]int{}}
	for _, c := range info.Countries {
		if _, err := geo.KnownCountry(c.Code); err == nil {
			a.places[c.Code] = len(a.codes)
			a.codes = append(a.codes, c.Code)
		}
	}
	for family := range a.rows {
		is4 := family == 0
		next := addrset.Number{}
		add := func(from addrset.Number, place int) {
			if n := len(a.rows[family]); n == 0 || a.rows[family][n-1].place != place {
				a.rows[family] = append(a.rows[family], stretch{from, place})
			}
		}
		err := d.EachRange(is4, func(from, to addrset.Number, country string) {
			if next.Less(from) {
				add(next, 0)
			}
			add(from, a.places[country])
			next = to.Next()
		})
		if err != nil {
			return nil, err
		}
		if len(a.rows[family]) == 0 || next != addrset.LastNumber(is4).Next() {
			add(next, 0)
		}
	}
	return a, nil
}

// share is how many addresses of a class a place has.
type share struct {
	four uint64
	six  addrset.Number
}

// shares are those of each place in each class of sources.
func (a *Atlas) shares(u *reach.Universe, classes int) [][]share {
	out := make([][]share, len(a.codes))
	for i := range out {
		out[i] = make([]share, classes)
	}
	for family, rows := range a.rows {
		is4, at := family == 0, 0
		u.EachSource(is4, func(from, to addrset.Number, class int) {
			for {
				end := addrset.LastNumber(is4)
				if at+1 < len(rows) {
					end = rows[at+1].from.Prev()
				}
				last := end
				if to.Less(end) {
					last = to
				}
				s := &out[rows[at].place][class]
				if n := last.Sub(from).Next(); is4 {
					s.four += n.Lo
				} else {
					s.six = s.six.Add(n)
				}
				if end == last && at+1 < len(rows) {
					at++
				}
				if last == to {
					return
				}
				from = last.Next()
			}
		})
	}
	return out
}
