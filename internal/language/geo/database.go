package geo

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/cache"
	"sluice/internal/base/regular"
	"sluice/internal/base/sorting"
)

// Database answers which addresses are of a country, and which country an
// address is of. It may be used by several goroutines at once.
type Database struct {
	file    *file
	path    string
	updated time.Time
	cache   cache.Cache // of what Places gave

	lookups [2]sync.Once // IPv4, IPv6
	rows    [2][]row
	failed  [2]error
}

// Names of the files below the state directory.
const (
	folder       = "geo"
	currentName  = "countries"
	previousName = "countries.previous"
)

// CurrentFile is where an update puts its data.
func CurrentFile(stateDir string) string { return filepath.Join(stateDir, folder, currentName) }

// PreviousFile is where an update keeps the data that it replaced.
func PreviousFile(stateDir string) string { return filepath.Join(stateDir, folder, previousName) }

// Open returns the data that an update left in the state directory, or the
// built-in snapshot when there are none. The error is an [*UnreadableError].
func Open(stateDir string) (*Database, error) {
	d, err := OpenFile(CurrentFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		d, err = Snapshot()
	}
	if err == nil {
		d.cache = cache.Below(stateDir)
		return d, nil
	}
	return nil, &UnreadableError{err}
}

// UnreadableError says that the data of an update cannot be read.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// OpenFile opens data in the compact form.
func OpenFile(path string) (*Database, error) {
	data, err := regular.Read(path, MaxFile)
	if err != nil {
		return nil, err
	}
	d, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d.path = path
	if st, err := os.Stat(path); err == nil {
		d.updated = st.ModTime().UTC().Truncate(time.Second)
	}
	return d, nil
}

// Decode reads data in the compact form, which it keeps a reference to. The
// ranges are decoded later, when they are asked for.
func Decode(data []byte) (*Database, error) {
	f, err := decodeFile(data)
	if err != nil {
		return nil, err
	}
	return &Database{file: f}, nil
}

// Sum is the checksum of the data, which tells them from all others.
func (d *Database) Sum() [sha256.Size]byte { return d.file.sum }

// Info describes the data; countries are in the order of their codes.
func (d *Database) Info() Info {
	h := &d.file.header
	info := Info{Origin: h.Origin, BuiltIn: d.path == "", File: d.path, Updated: d.updated, Overlaps: h.Overlaps}
	for _, c := range h.Countries {
		info.Countries = append(info.Countries, CountryInfo{CountryOf(c.Code), c.Counts})
		info.Total.add(c.Counts)
	}
	sorting.By(info.Countries, func(a, b CountryInfo) int { return cmp.Compare(a.Code, b.Code) })
	return info
}

// Countries returns the addresses of the countries with these codes, in any
// case. A country that exists and has no addresses in the data adds none; a code
// that is not a country's is an [*UnknownError].
func (d *Database) Countries(codes ...string) (addrset.Set, error) {
	return d.Places(codes, nil)
}

// Continents returns the addresses of the countries in these continents: AF, AN,
// AS, EU, NA, OC, SA, in any case. Another code is an [*UnknownError].
func (d *Database) Continents(codes ...string) (addrset.Set, error) {
	return d.Places(nil, codes)
}

// Places is Countries and Continents together, in one pass over the data. What it
// gives is kept in the cache of the state directory that the data are opened in.
func (d *Database) Places(countries, continents []string) (addrset.Set, error) {
	want := make([]bool, len(d.file.header.Countries))
	for _, code := range countries {
		i := slices.IndexFunc(d.file.header.Countries, func(c fileCounts) bool { return equalFold(c.Code, code) })
		if i >= 0 {
			want[i] = true
			continue
		}
		if _, err := KnownCountry(code); err != nil {
			return addrset.Set{}, err
		}
	}
	for _, code := range continents {
		continent, err := KnownContinent(code)
		if err != nil {
			return addrset.Set{}, err
		}
		for i, c := range d.file.header.Countries {
			want[i] = want[i] || continentOf(c.Code) == continent
		}
	}
	return d.remembered(want)
}

// placesKind is the name of chosen countries in the cache.
const placesKind = "countries"

// remembered is build, once for each choice of countries in the same data.
func (d *Database) remembered(want []bool) (addrset.Set, error) {
	key := fmt.Sprintf("ranges 1\n%x\n", d.file.sum)
	for i, c := range d.file.header.Countries {
		if want[i] {
			key += c.Code + " "
		}
	}
	var s addrset.Set
	if data, ok := d.cache.Get(placesKind, key); ok && s.UnmarshalBinary(data) == nil {
		return s, nil
	}
	s, err := d.build(want)
	if err == nil && !s.IsEmpty() {
		data, _ := s.MarshalBinary() // it never fails
		d.cache.Put(placesKind, key, data)
	}
	return s, err
}

// All returns the addresses of every country in the data, which is less than all
// addresses: nobody's and private ones are in no country.
func (d *Database) All() (addrset.Set, error) {
	return d.build(slices.Repeat([]bool{true}, len(d.file.header.Countries)))
}

// build decodes both families at once: together they are half a million ranges.
func (d *Database) build(want []bool) (addrset.Set, error) {
	if !slices.Contains(want, true) {
		return addrset.Set{}, nil
	}
	var rows4, rows6 int
	for i, c := range d.file.header.Countries {
		if want[i] {
			rows4, rows6 = rows4+c.Ranges4, rows6+c.Ranges6
		}
	}
	var parts [2]addrset.Set
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() {
		var b addrset.Builder
		b.Grow(min(rows4, d.file.header.Sections[0].Rows, maxGrow), 0)
		failed[0] = d.ranges(true, want, func(from, to num) { b.Add4(uint32(from.Lo), uint32(to.Lo)) })
		parts[0] = b.Set()
	})
	both.Go(func() {
		var b addrset.Builder
		b.Grow(0, min(rows6, d.file.header.Sections[1].Rows, maxGrow))
		failed[1] = d.ranges(false, want, func(from, to num) { b.Add6(from.Hi, from.Lo, to.Hi, to.Lo) })
		parts[1] = b.Set()
	})
	both.Wait()
	if err := cmp.Or(failed[0], failed[1]); err != nil {
		return addrset.Set{}, d.located(err)
	}
	return parts[0].Union(parts[1]), nil
}

// maxGrow bounds what is allocated on the word of a header.
const maxGrow = 1 << 20

// ranges gives the ranges of the wanted countries, neighbours joined.
func (d *Database) ranges(is4 bool, want []bool, add func(from, to num)) error {
	var from, to num
	open := false
	err := d.file.each(is4, func(f, t num, country int) bool {
		switch {
		case !want[country]:
		case open && to.Next() == f:
			to = t
		default:
			if open {
				add(from, to)
			}
			from, to, open = f, t, true
		}
		return true
	})
	if open && err == nil {
		add(from, to)
	}
	return err
}

func (d *Database) located(err error) error {
	if d.path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", d.path, err)
}

// Match is what the data say of an address: its country and the range of that
// country that it lies in.
type Match struct {
	Country
	Range addrset.Range
}

// Lookup returns the country of an address, and whether it has one. An
// IPv4-mapped address is looked up as IPv4.
func (d *Database) Lookup(a netip.Addr) (Country, bool) {
	m, ok, err := d.Find(a)
	return m.Country, ok && err == nil
}

// Find is Lookup with the range that holds the address, and with the error of
// damaged data. The first call decodes all of the address's family.
func (d *Database) Find(a netip.Addr) (Match, bool, error) {
	r, found, err := d.row(a)
	if !found || err != nil {
		return Match{}, false, err
	}
	is4 := a.Unmap().Is4()
	return Match{
		CountryOf(d.file.header.Countries[r.code].Code),
		addrset.Range{From: r.from.Addr(is4), To: r.to.Addr(is4)},
	}, true, nil
}

// Code is the code of an address's country; "" where it has none, or the data are damaged. It
// is for many addresses, of which Lookup would look up each country's name too.
func (d *Database) Code(a netip.Addr) string {
	if r, found, err := d.row(a); found && err == nil {
		return d.file.header.Countries[r.code].Code
	}
	return ""
}

func (d *Database) row(a netip.Addr) (r row, found bool, err error) {
	a = a.Unmap()
	if !a.IsValid() {
		return r, false, nil
	}
	i := 1
	if a.Is4() {
		i = 0
	}
	d.lookups[i].Do(func() {
		d.rows[i] = make([]row, 0, min(d.file.header.Sections[i].Rows, 1<<22))
		d.failed[i] = d.file.each(a.Is4(), func(from, to num, country int) bool {
			d.rows[i] = append(d.rows[i], row{from, to, uint16(country)})
			return true
		})
	})
	if d.failed[i] != nil {
		return r, false, d.located(d.failed[i])
	}
	at, found := slices.BinarySearchFunc(d.rows[i], addrset.NumberOf(a), func(r row, n num) int {
		switch {
		case r.to.Less(n):
			return -1
		case n.Less(r.from):
			return 1
		}
		return 0
	})
	if !found {
		return r, false, nil
	}
	return d.rows[i][at], true, nil
}

func equalFold(code, other string) bool {
	return len(code) == len(other) && len(other) == 2 && code[0] == upper(other[0]) && code[1] == upper(other[1])
}

func upper(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b - 'a' + 'A'
	}
	return b
}
