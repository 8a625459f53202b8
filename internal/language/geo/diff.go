package geo

import (
	"cmp"
	"maps"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
)

// Diff is what one database has otherwise than another, by country, in the order
// of the codes. Countries that are the same in both are left out.
type Diff struct {
	Old       Origin        `json:"old"`
	New       Origin        `json:"new"`
	Countries []CountryDiff `json:"countries"`
}

// CountryDiff is what a country gained and lost.
type CountryDiff struct {
	Country
	Added   Counts `json:"added"`
	Removed Counts `json:"removed"`
}

// Compare returns what next changes against old.
func Compare(old, next *Database) (Diff, error) {
	d := Diff{Old: old.file.header.Origin, New: next.file.header.Origin, Countries: []CountryDiff{}}
	was, err := old.byCountry()
	if err != nil {
		return d, err
	}
	is, err := next.byCountry()
	if err != nil {
		return d, err
	}
	for code := range maps.Keys(is) {
		if _, ok := was[code]; !ok {
			was[code] = addrset.Set{}
		}
	}
	for code, w := range was {
		if n := is[code]; !n.Equal(w) {
			d.Countries = append(d.Countries, CountryDiff{CountryOf(code), CountsOf(n.Difference(w)), CountsOf(w.Difference(n))})
		}
	}
	sorting.By(d.Countries, func(a, b CountryDiff) int { return cmp.Compare(a.Code, b.Code) })
	return d, nil
}

// byCountry builds the sets of all countries in one pass.
func (d *Database) byCountry() (map[string]addrset.Set, error) {
	builders := make([]addrset.Builder, len(d.file.header.Countries))
	for _, is4 := range [2]bool{true, false} {
		err := d.file.each(is4, func(from, to num, country int) bool {
			builders[country].AddRange(addrset.Range{From: from.Addr(is4), To: to.Addr(is4)})
			return true
		})
		if err != nil {
			return nil, d.located(err)
		}
	}
	out := make(map[string]addrset.Set, len(builders))
	for i, c := range d.file.header.Countries {
		out[c.Code] = builders[i].Set()
	}
	return out, nil
}
