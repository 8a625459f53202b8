package geo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/lab/testnet"
)

// realData returns the folder of a dataset that scripts/fetch-geo-data fetches.
func realData(t testing.TB, dataset string) string {
	t.Helper()
	cache := os.Getenv("SLUICE_GEO_CACHE")
	if cache == "" {
		cache = filepath.Join("..", "..", "..", ".cache", "geo")
	}
	dir := filepath.Join(cache, dataset)
	if _, err := os.Stat(filepath.Join(dir, "VERSION")); err != nil {
		testnet.Lacks(t, "the data "+dataset, fmt.Errorf("%w\nhint: run scripts/fetch-geo-data", err))
	}
	return dir
}

func readFiles(t testing.TB, files ...string) *Database {
	t.Helper()
	var table Table
	var o Origin
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if o, err = Read(f, filepath.Base(name), &table); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	data, err := table.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustSet(t testing.TB, f func(...string) (addrset.Set, error), codes ...string) addrset.Set {
	t.Helper()
	s, err := f(codes...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The figures that layouts are measured with: the ranges of all countries
// outside Europe (UN M49 with Kosovo, and Cyprus). In IPv4 it matters that it is
// the countries' ranges and not the whole space except for Europe; in IPv6 the two
// come to the same counts.
func TestAllButEurope(t *testing.T) {
	dir := realData(t, "dbip-country")
	for _, form := range []string{"-num", ""}[:testseed.Rounds(1, 2)] {
		d := readFiles(t, filepath.Join(dir, "dbip-country-ipv4"+form+".csv"), filepath.Join(dir, "dbip-country-ipv6"+form+".csv"))
		all, err := d.All()
		if err != nil {
			t.Fatal(err)
		}
		europe := mustSet(t, d.Continents, "EU")
		for _, c := range []struct {
			what           string
			set            addrset.Set
			r4, p4, r6, p6 int
		}{
			{what: "all but Europe", set: all.Difference(europe), r4: 48665, p4: 120816, r6: 95851, p6: 161728},
			{what: "Europe", set: europe, r4: 48657, p4: 104882, r6: 95850, p6: 259020},
			{what: "the whole space except for Europe", set: europe.Complement(), r4: 48658, p4: 120808, r6: 95851, p6: 161728},
		} {
			got := CountsOf(c.set)
			if got.Ranges4 != c.r4 || got.Prefixes4 != c.p4 || got.Ranges6 != c.r6 || got.Prefixes6 != c.p6 {
				t.Errorf("%s: %+v, want %d ranges and %d prefixes of IPv4, %d and %d of IPv6", c.what, got, c.r4, c.p4, c.r6, c.p6)
			}
		}
		others := mustSet(t, d.Continents, "AF", "AN", "AS", "NA", "OC", "SA")
		if !others.Equal(all.Difference(europe)) {
			t.Error("the other six continents are not all but Europe: a country is in none or in two")
		}
	}
}

func TestEveryCountryHasNameAndContinent(t *testing.T) {
	snapshot, err := Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	dir := realData(t, "dbip-country")
	for _, d := range []*Database{snapshot, readFiles(t, filepath.Join(dir, "dbip-country-ipv4.csv"), filepath.Join(dir, "dbip-country-ipv6.csv"))} {
		if n := len(d.Info().Countries); n < 240 {
			t.Errorf("%s: only %d countries", d.Info().Source, n)
		}
		for _, c := range d.Info().Countries {
			// AN was the Netherlands Antilles, which are no more.
			if c.Name == "" && c.Code != "AN" || continentNames[c.Continent] == "" || strings.Contains(c.Name, "Unknown") {
				t.Errorf("%s: %+v", d.Info().Source, c.Country)
			}
			if c.Code[0] != 'N' {
				continue
			}
			if got := CountsOf(mustSet(t, d.Countries, c.Code)); got.Ranges4 != c.Ranges4 || got.Prefixes4 != c.Prefixes4 ||
				got.Addresses4 != c.Addresses4 || got.Ranges6 != c.Ranges6 || got.Prefixes6 != c.Prefixes6 || got.Addresses6.Big().Cmp(c.Addresses6.Big()) != 0 {
				t.Errorf("%s: header says %+v, set has %+v", c.Code, c.Counts, got)
			}
		}
	}
}

// The snapshot in the repository is what its generator makes.
func TestSnapshotIsGenerated(t *testing.T) {
	dir := realData(t, "geo-whois-asn-country")
	var table Table
	for _, name := range []string{"geo-whois-asn-country-ipv4.csv", "geo-whois-asn-country-ipv6.csv"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := Read(f, name, &table); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	data, err := table.Encode(committed.file.header.Origin)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, snapshot) {
		t.Error("snapshot.bin differs from what ./gen makes: run go generate")
	}
}

func TestSnapshotIsSmallAndTold(t *testing.T) {
	if len(snapshot) > 2<<20 {
		t.Errorf("the snapshot takes %d bytes", len(snapshot))
	}
	d, err := Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	i := d.Info()
	if i.Date.Format(time.DateOnly) != "2026-06-17" || !strings.Contains(i.Licence, "CC0") || i.Attribution == "" || !i.BuiltIn || i.File != "" {
		t.Errorf("snapshot says of itself %+v", i.Origin)
	}
	if age := i.Age(time.Date(2026, 6, 19, 0, 0, 0, 0, time.UTC)); age != 48*time.Hour {
		t.Errorf("age is %v", age)
	}
}

func BenchmarkOneContinent(b *testing.B) {
	d, err := Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Continents("EU"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		if _, err := Snapshot(); err != nil {
			b.Fatal(err)
		}
	}
}
