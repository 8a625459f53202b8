package geo

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/testseed"
)

func TestSourceOf(t *testing.T) {
	on := func(day string) time.Time {
		d, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct{ from, day, publisher, place string }{
		{"dbip", "2026-03-31", "dbip", "https://download.db-ip.com/free/dbip-country-lite-2026-03.csv.gz"},
		{"dbip", "2026-03-03", "dbip", "https://download.db-ip.com/free/dbip-country-lite-2026-03.csv.gz"},
		{"dbip", "2026-03-02", "dbip", "https://download.db-ip.com/free/dbip-country-lite-2026-02.csv.gz"},
		{"dbip", "2026-01-01", "dbip", "https://download.db-ip.com/free/dbip-country-lite-2025-12.csv.gz"},
		{"dbip=a.csv", "2026-01-01", "dbip", "a.csv"},
		{"./dbip", "2026-01-01", "", "./dbip"},
		{"own=https://a.example/?b=c", "2026-01-01", "own", "https://a.example/?b=c"},
		{"https://a.example/?b=c", "2026-01-01", "", "https://a.example/?b=c"},
		{"/data/b=c.csv", "2026-01-01", "", "/data/b=c.csv"},
	} {
		if publisher, place := sourceOf(c.from, on(c.day)); publisher != c.publisher || place != c.place {
			t.Errorf("%s on %s: %q %q", c.from, c.day, publisher, place)
		}
	}
	for _, name := range Defaults {
		if !Lasts(name) {
			t.Error(name)
		}
	}
	if Lasts("own=a.csv") || !Lasts("own=http://a.example/") {
		t.Error("a file lasts, or a URL does not")
	}
}

// Every address is as the first publisher says that says something, and what the others say
// of it is counted.
func TestCombined(t *testing.T) {
	r := testseed.Rand(t)
	codes := []string{"NO", "SE", "FI"}
	for range 300 {
		names, tables := make([]string, 1+r.IntN(3)), []*Table(nil)
		said := map[netip.Addr][]string{} // of each publisher, "" is nothing
		addresses := append(around(t, "255.255.255.224", 32), around(t, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0", 16)...)
		for i := range names {
			names[i] = fmt.Sprint(i)
			table := &Table{}
			for range r.IntN(12) {
				addRandom(t, r, table, addresses, codes[r.IntN(len(codes))])
			}
			tables = append(tables, table)
			alone := lookup(t, table)
			for _, a := range addresses {
				said[a] = append(said[a], alone(a))
			}
		}
		table, publishers := combined(names, tables)
		got := lookup(t, table)
		decides, otherwise := make([]int, len(names)), make([]int, len(names))
		for _, a := range addresses {
			want := ""
			for i, code := range said[a] {
				switch {
				case code == "":
				case want == "":
					want = code
					decides[i]++
				case code != want:
					otherwise[i]++
				}
			}
			if have := got(a); have != want {
				t.Fatalf("%s is in %q and not in %q: %v", a, have, want, said[a])
			}
		}
		total := func(c Counts) int { return int(c.Addresses4) + int(c.Addresses6.Big().Int64()) }
		for i, p := range publishers {
			pairs := 0
			for _, d := range p.Differs {
				pairs += total(d.Counts)
			}
			if p.Name != names[i] || total(p.Decides) != decides[i] || total(p.Otherwise) != otherwise[i] || pairs != otherwise[i] {
				t.Fatalf("%+v, want %d and %d", p, decides[i], otherwise[i])
			}
		}
	}
}

func around(t *testing.T, first string, n int) (out []netip.Addr) {
	t.Helper()
	for a := netip.MustParseAddr(first); len(out) < n; a = a.Next() {
		out = append(out, a)
	}
	return out
}

func addRandom(t *testing.T, r *rand.Rand, table *Table, addresses []netip.Addr, code string) {
	t.Helper()
	from, to := addresses[r.IntN(len(addresses))], addresses[r.IntN(len(addresses))]
	if from.BitLen() != to.BitLen() {
		return
	}
	if to.Less(from) {
		from, to = to, from
	}
	if err := table.Add(from, to, code); err != nil {
		t.Fatal(err)
	}
}

// lookup gives the code of an address in a table, once that is a database; "" is nothing.
func lookup(t *testing.T, table *Table) func(netip.Addr) string {
	t.Helper()
	if table.Rows() == 0 {
		return func(netip.Addr) string { return "" }
	}
	data, err := table.Encode(Origin{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return func(a netip.Addr) string {
		c, _ := d.Lookup(a)
		return c.Code
	}
}

// An update of several publishers keeps who they were, to be asked again.
func TestUpdateOfPublishers(t *testing.T) {
	state := t.TempDir()
	a := "first=" + write(t, "a.csv", "192.0.2.0,192.0.2.9,NO\n")
	b := "second=" + write(t, "b.csv", "192.0.2.5,192.0.2.19,SE\n2001:db8::,2001:db8::9,SE\n")
	r, err := Update(t.Context(), UpdateOptions{StateDir: state, From: []string{a, b}, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := inUse(t, state); got != "192.0.2.0-192.0.2.9" || len(r.Publishers) != 2 {
		t.Errorf("%s %+v", got, r)
	}
	p := r.Publishers[1]
	if p.Decides.Addresses4 != 10 || p.Decides.Addresses6.Big().Int64() != 10 || len(p.Differs) != 1 ||
		p.Differs[0].Decided.Code != "NO" || p.Differs[0].Said.Code != "SE" || p.Differs[0].Addresses4 != 5 {
		t.Errorf("%+v", p)
	}
	if got := strings.Join(r.Info.From, " "); got != a+" "+b {
		t.Error(got)
	}
}
