package geo

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
)

// small is a database of a few ranges of documentation networks.
func small(t testing.TB, rows ...string) *Database {
	t.Helper()
	var table Table
	if _, err := Read(strings.NewReader(strings.Join(rows, "\n")), "small.csv", &table); err != nil {
		t.Fatal(err)
	}
	data, err := table.Encode(Origin{Source: "test", Date: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func smallRows() []string {
	return []string{
		"192.0.2.0,192.0.2.127,NO",
		"192.0.2.128,192.0.2.255,SE",
		"198.51.100.0,198.51.100.255,NO",
		"203.0.113.0,203.0.113.255,US",
		"2001:db8::,2001:db8:0:ffff:ffff:ffff:ffff:ffff,NO",
		"2001:db8:1::,2001:db8:1:ffff:ffff:ffff:ffff:ffff,CY",
	}
}

func TestCountries(t *testing.T) {
	d := small(t, smallRows()...)
	for _, c := range []struct {
		f     func(...string) (addrset.Set, error)
		codes []string
		want  string
	}{
		{d.Countries, []string{"NO"}, "192.0.2.0/25, 198.51.100.0/24, 2001:db8::/48"},
		{d.Countries, []string{"no", "Se"}, "192.0.2.0/24, 198.51.100.0/24, 2001:db8::/48"},
		{d.Countries, []string{"FR"}, ""},
		{d.Countries, nil, ""},
		{d.Continents, []string{"EU"}, "192.0.2.0/24, 198.51.100.0/24, 2001:db8::/47"},
		{d.Continents, []string{"na"}, "203.0.113.0/24"},
		{d.Continents, []string{"AN"}, ""},
	} {
		s, err := c.f(c.codes...)
		if err != nil || s.String() != c.want {
			t.Errorf("%v: %v, %v; want %s", c.codes, s, err, c.want)
		}
	}
}

func TestUnknownCodes(t *testing.T) {
	d := small(t, smallRows()...)
	for _, c := range []struct {
		f          func(...string) (addrset.Set, error)
		code, want string
	}{
		{d.Countries, "UK", "unknown country \"UK\"\nhint: did you mean GB (United Kingdom)?"},
		{d.Countries, "NOR", "unknown country \"NOR\"\nhint: did you mean NO (Norway)?"},
		{d.Countries, "Norwey", "unknown country \"Norwey\"\nhint: did you mean NO (Norway)?"},
		{d.Countries, "EU", "unknown country \"EU\""},
		{d.Countries, "XX", "unknown country \"XX\""},
		{d.Countries, "ZZ", "unknown country \"ZZ\""},
		{d.Countries, "", "unknown country \"\""},
		{d.Countries, "🇳🇴", "unknown country \"🇳🇴\""},
		{d.Continents, "Europ", "unknown continent \"Europ\"\nhint: did you mean EU (Europe)?"},
		{d.Continents, "NO", "unknown continent \"NO\"\nhint: did you mean countries: [NO]?"},
		{d.Continents, "QQ", "unknown continent \"QQ\"\nhint: did you mean one of AF, AN, AS, EU, NA, OC, SA?"},
	} {
		_, err := c.f(c.code)
		var u *UnknownError
		if !errors.As(err, &u) || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", c.code, err, c.want)
		}
	}
}

func TestLookup(t *testing.T) {
	d := small(t, smallRows()...)
	for addr, want := range map[string]string{
		"192.0.2.0": "NO 192.0.2.0/25", "192.0.2.127": "NO 192.0.2.0/25", "192.0.2.128": "SE 192.0.2.128/25",
		"192.0.1.255": "", "198.51.101.0": "", "::ffff:203.0.113.9": "US 203.0.113.0/24",
		"2001:db8::1": "NO 2001:db8::/48", "2001:db8:1::": "CY 2001:db8:1::/48", "2001:db8:2::": "", "::1": "",
	} {
		a := netip.MustParseAddr(addr)
		m, ok, err := d.Find(a)
		got := ""
		if ok {
			got = m.Code + " " + m.Range.String()
		}
		if c, found := d.Lookup(a); err != nil || got != want || found != (want != "") || c != m.Country {
			t.Errorf("%s: %q, %v; want %q", addr, got, err, want)
		}
	}
	if _, ok := d.Lookup(netip.Addr{}); ok {
		t.Error("the invalid address has a country")
	}
}

func TestInfo(t *testing.T) {
	i := small(t, smallRows()...).Info()
	var codes []string
	for _, c := range i.Countries {
		codes = append(codes, c.Code)
	}
	if got := strings.Join(codes, " "); got != "CY NO SE US" {
		t.Errorf("countries %s", got)
	}
	if no := i.Countries[1]; no.Name != "Norway" || no.Continent != "EU" || no.Prefixes4 != 2 || no.Addresses4 != 384 || no.Addresses6.String() != "65536" {
		t.Errorf("%+v", no)
	}
	if i.Total.Addresses4 != 768 || i.Total.Ranges6 != 2 {
		t.Errorf("total %+v", i.Total)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir)
	if err != nil || !d.Info().BuiltIn {
		t.Fatalf("an empty state directory: %v", err)
	}
	var table Table
	if err := table.Add(netip.MustParseAddr("192.0.2.0"), netip.MustParseAddr("192.0.2.255"), "NO"); err != nil {
		t.Fatal(err)
	}
	data, err := table.Encode(Origin{Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	file := CurrentFile(dir)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	d, err = Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if i := d.Info(); i.BuiltIn || i.Source != "test" || i.File != file {
		t.Errorf("%+v", i)
	}
	for what, bad := range map[string][]byte{
		"cut off": data[:len(data)-1], "cut to the magic": data[:len(magic)], "empty": {}, "a bit turned": append([]byte{data[0]}, append([]byte{data[1] ^ 1}, data[2:]...)...),
		"a bit turned inside": append(append(data[:40:40], data[40]^1), data[41:]...),
	} {
		if err := os.WriteFile(file, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		var unreadable *UnreadableError
		if _, err := Open(dir); !errors.As(err, &unreadable) || !strings.HasPrefix(err.Error(), file+": ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestQuantity(t *testing.T) {
	for digits, want := range map[string]string{
		"0": "0", "1": "<1", "18446744073709551615": "<1", "18446744073709551616": "1",
		"79228162514264337593543950336": "4.29e9", "340282366920938463463374607431768211456": "1.84e19",
	} {
		var q Quantity
		if err := q.UnmarshalText([]byte(digits)); err != nil || q.String() != want {
			t.Errorf("%s is %s, %v; want %s", digits, q, err, want)
		}
	}
}
