package addrset

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"203.0.113.7", "203.0.113.7"},
		{"203.0.113.7/32", "203.0.113.7"},
		{"203.0.113.0/24", "203.0.113.0/24"},
		{"203.0.113.0-203.0.113.255", "203.0.113.0/24"},
		{"203.0.113.1-203.0.113.9", "203.0.113.1-203.0.113.9"},
		{"203.0.113.7-203.0.113.7", "203.0.113.7"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"0.0.0.1-255.255.255.255", "0.0.0.1-255.255.255.255"},
		{"2001:DB8:0::1", "2001:db8::1"},
		{"2001:db8::/32", "2001:db8::/32"},
		{"::/0", "::/0"},
		{"::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0"},
		{"2001:db8::1-2001:db8::2", "2001:db8::1-2001:db8::2"},
	} {
		r, err := ParseRange(c.in)
		if err != nil || r.String() != c.want {
			t.Errorf("%q: %v, %v; want %s", c.in, r, err, c.want)
		}
	}
}

func TestParseRangeErrors(t *testing.T) {
	for _, c := range []struct{ in, problem, hint string }{
		{"", "address is empty", "write an address, a prefix such as 203.0.113.0/24, or a range such as 203.0.113.1-203.0.113.9"},
		{"203.0.113.7/24", "prefix 203.0.113.7/24 has bits set beyond its length", "write 203.0.113.0/24 for the network or 203.0.113.7 for the one address"},
		{"2001:db8::1/64", "prefix 2001:db8::1/64 has bits set beyond its length", "write 2001:db8::/64 for the network or 2001:db8::1 for the one address"},
		{"203.0.113.0/33", `"33" is not a prefix length from 0 to 32`, ""},
		{"203.0.113.0/", `"" is not a prefix length from 0 to 32`, ""},
		{"203.0.113.0/024", `"024" is not a prefix length from 0 to 32`, ""},
		{"203.0.113.9/255.255.255.0", `"255.255.255.0" is not a prefix length from 0 to 32`, "write 203.0.113.0/24"},
		{"203.0.113.9/0.0.0.0", `"0.0.0.0" is not a prefix length from 0 to 32`, "write 0.0.0.0/0"},
		{"203.0.113.9/255.0.255.0", `"255.0.255.0" is not a prefix length from 0 to 32`, ""},
		{"2001:db8::/129", `"129" is not a prefix length from 0 to 128`, ""},
		{"203.0.113.9-203.0.113.1", "range 203.0.113.9-203.0.113.1 is reversed", "write 203.0.113.1-203.0.113.9"},
		{"203.0.113.9-2001:db8::1", "range 203.0.113.9-2001:db8::1 mixes IPv4 and IPv6", "give two addresses of one family"},
		{"203.0.113.9 - 203.0.113.12", `"203.0.113.9 - 203.0.113.12" has blanks in it`, "write 203.0.113.9-203.0.113.12"},
		{"203.0.113.9 203.0.113.12", `"203.0.113.9 203.0.113.12" has blanks in it`, ""},
		{"203.0.113.1-203.0.113.3-203.0.113.9", `"203.0.113.3-203.0.113.9" is not an IP address`, ""},
		{"203.0.113.1-203.0.113.0/24", `"203.0.113.1-203.0.113.0" is not an IP address`, ""},
		{"203.0.113.1-9", `"9" is not an IP address`, "write 203.0.113.1-203.0.113.9"},
		{"203.0.113.9-1", `"1" is not an IP address`, ""},
		{"::ffff:203.0.113.7", "address ::ffff:203.0.113.7 is IPv4 in IPv6 notation", "write 203.0.113.7"},
		{"::ffff:203.0.113.0/120", "address ::ffff:203.0.113.0 is IPv4 in IPv6 notation", "write 203.0.113.0/24"},
		{"::ffff:203.0.113.0-::ffff:203.0.113.9", "address ::ffff:203.0.113.0 is IPv4 in IPv6 notation", "write 203.0.113.0-203.0.113.9"},
		{"fe80::1%eth0", "address fe80::1%eth0 has a zone", "write fe80::1 and name the interface with a zone of the policy"},
		{"fe80::%eth0/64", "address fe80::%eth0 has a zone", "write fe80:: and name the interface with a zone of the policy"},
		{"203.0.113.007", `"203.0.113.007" is not an IP address`, "numbers with leading zeros are octal to some programs; write 203.0.113.7"},
		{"[2001:db8::1]", `"[2001:db8::1]" is not an IP address`, "write 2001:db8::1 without brackets"},
		{"203.0.113", `"203.0.113" is not an IP address`, ""},
		{"example.net", `"example.net" is not an IP address`, ""},
	} {
		_, err := ParseRange(c.in)
		var e *ParseError
		if !errors.As(err, &e) {
			t.Errorf("%q: error %v is not a ParseError", c.in, err)
			continue
		}
		if e.Text != c.in || e.Problem != c.problem || e.Hint != c.hint {
			t.Errorf("%q:\n got %q, hint %q\nwant %q, hint %q", c.in, e.Problem, e.Hint, c.problem, c.hint)
		}
		if want := strings.TrimSuffix(c.problem+"\nhint: "+c.hint, "\nhint: "); err.Error() != want {
			t.Errorf("%q: error text %q, want %q", c.in, err, want)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{
		"", "203.0.113.7", "203.0.113.0/24", "203.0.113.1-203.0.113.9", "0.0.0.0/0", "::/0", "2001:db8::/32",
		"2001:db8::1-2001:db8::2", "::ffff:203.0.113.7/120", "fe80::1%eth0", "1.2.3.4/255.255.0.0", "1.2.3.4/0.0.0.0", "01.2.3.4", " 1.2.3.4", "-", "/", "::-::ffff:0:1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s)
		if err != nil {
			var e *ParseError
			if !errors.As(err, &e) || e.Text != s || e.Problem == "" {
				t.Fatalf("%q: error %#v", s, err)
			}
			return
		}
		if !r.IsValid() {
			t.Fatalf("%q: invalid range %v", s, r)
		}
		again, err := ParseRange(r.String())
		if err != nil || again != r {
			t.Fatalf("%q reads as %v, which reads as %v, %v", s, r, again, err)
		}
		ps := r.Prefixes()
		if len(ps) > 2*128 || ps[0].Addr() != r.From || PrefixRange(ps[len(ps)-1]).To != r.To {
			t.Fatalf("%q: prefixes %v", s, ps)
		}
		if got := FromPrefixes(ps...).Ranges(); len(got) != 1 || got[0] != r {
			t.Fatalf("%q: prefixes make %v", s, got)
		}
	})
}

func TestPrefixOfRange(t *testing.T) {
	for in, want := range map[string]string{
		"203.0.113.0-203.0.113.127": "203.0.113.0/25",
		"203.0.113.0-203.0.113.128": "invalid Prefix",
		"0.0.0.0-255.255.255.255":   "0.0.0.0/0",
		"2001:db8::1":               "2001:db8::1/128",
	} {
		r, err := ParseRange(in)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := r.Prefix()
		if p.String() != want || ok != (p != netip.Prefix{}) {
			t.Errorf("%s: %v, %v; want %s", in, p, ok, want)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		text         string
		bits4, bits6 int
		want         bool
	}{
		{"10.0.0.0/7", 7, 15, true},
		{"10.0.0.0/8", 7, 15, false},
		{"10.0.0.1-12.0.0.0", 7, 15, true}, // as many, and no prefix
		{"10.0.0.1-11.255.255.255", 7, 15, false},
		{"0.0.0.0/0", 0, 0, true},
		{"2000::/15", 7, 15, true},
		{"2001::/16", 7, 15, false},
		{"::/0", 0, 0, true},
	} {
		r, err := ParseRange(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Holds(c.bits4, c.bits6); got != c.want {
			t.Errorf("%s holds /%d or /%d: %v", c.text, c.bits4, c.bits6, got)
		}
	}
}

// A range has the addresses and ranges that a set of it alone has.
func TestRangeContains(t *testing.T) {
	ranges := []Range{}
	for _, text := range []string{"0.0.0.0/0", "10.0.0.0/8", "10.1.2.3", "10.0.0.0-10.1.2.3", "::/0", "2001:db8::/32", "2001:db8::7", "::"} {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, r)
	}
	for _, r := range ranges {
		for _, o := range ranges {
			for _, a := range []netip.Addr{o.From, o.To} {
				if got, want := r.Contains(a), Of(r).Contains(a); got != want {
					t.Errorf("%v contains %v: %v, want %v", r, a, got, want)
				}
			}
			if got, want := r.ContainsRange(o), Of(r).ContainsSet(Of(o)); got != want {
				t.Errorf("%v contains %v: %v, want %v", r, o, got, want)
			}
		}
		if r.Contains(netip.Addr{}) {
			t.Errorf("%v contains no address", r)
		}
	}
}
