package geo

import (
	"cmp"
	"sync"

	"sluice/internal/base/addrset"
)

// ByCountry returns the addresses of every country in the data, by its code, in
// one pass over the data.
func (d *Database) ByCountry() (map[string]addrset.Set, error) {
	n := len(d.file.header.Countries)
	builders, other := make([]addrset.Builder, n), make([]addrset.Builder, n) // a builder is no place for two at once
	for i, c := range d.file.header.Countries {
		builders[i].Grow(min(c.Ranges4, maxGrow), 0)
		other[i].Grow(0, min(c.Ranges6, maxGrow))
	}
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() {
		failed[0] = d.file.each(true, func(from, to num, country int) bool {
			builders[country].Add4(uint32(from.Lo), uint32(to.Lo))
			return true
		})
	})
	both.Go(func() {
		failed[1] = d.file.each(false, func(from, to num, country int) bool {
			other[country].Add6(from.Hi, from.Lo, to.Hi, to.Lo)
			return true
		})
	})
	both.Wait()
	if err := cmp.Or(failed[0], failed[1]); err != nil {
		return nil, d.located(err)
	}
	out := make(map[string]addrset.Set, n)
	for i, c := range d.file.header.Countries {
		out[c.Code] = builders[i].Set().Union(other[i].Set())
	}
	return out, nil
}

// EachRange calls f for each range of one family with its country's code, in order; none
// overlap.
func (d *Database) EachRange(is4 bool, f func(from, to addrset.Number, country string)) error {
	err := d.file.each(is4, func(from, to num, country int) bool {
		f(from, to, d.file.header.Countries[country].Code)
		return true
	})
	if err != nil {
		return d.located(err)
	}
	return nil
}
