package query

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// resolved reads a policy for a host with the addresses 198.51.100.1 on eth0 and
// 10.20.0.1 on lan0.
func resolved(t testing.TB, file, text string) *resolve.Resolved {
	t.Helper()
	p, err := policy.LoadData(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	facts := host.Facts{Known: true, DefaultRoute: []string{"eth0"}, Interfaces: []host.Interface{
		{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8::1/64")}},
		{Name: "lan0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24")}},
	}}
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts, Geo: geo.Snapshot, User: func(string) (uint32, error) { return 1000, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const namedPolicy = `version: 1
zones:
  wan: { interfaces: [eth0] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
  vms: { networks: [10.30.0.0/16] }
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  partners: [192.0.2.0/28, 192.0.2.32/28, 192.0.2.64/28, 192.0.2.96/28, 192.0.2.128/28]
  banned: [192.0.2.33, 192.0.2.35, 192.0.2.37, 192.0.2.39, "2001:db8:bad::/48"]
  europe: { continents: [EU] }
`

func TestNames(t *testing.T) {
	r := resolved(t, "policy.yaml", namedPolicy)
	n := NewNames(geo.Snapshot, r)
	d, err := geo.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	countries := func(codes ...string) addrset.Set {
		s, err := d.Countries(codes...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	set := func(name string) addrset.Set { return r.Sets[name].Addresses }
	office, partners, banned, europe := set("office"), set("partners"), set("banned"), set("europe")
	many := addrset.Builder{}
	for i := range byte(40) {
		many.AddAddr(netip.AddrFrom4([4]byte{198, 18, i, 7}))
	}
	for _, test := range []struct {
		set  addrset.Set
		want string
	}{
		{addrset.All(), "anywhere"},
		{addrset.Set{}, "nobody (no address)"},
		{addrset.All().Only4(), "any IPv4 address (4,294,967,296 IPv4 addresses)"},
		{office, "office (256 IPv4 addresses, 2^80 of IPv6)"},
		{office.Only4(), "IPv4 of office (256 IPv4 addresses)"},
		{office.Complement(), "not office (4,294,967,040 IPv4 addresses, about 2^128 of IPv6)"},
		{office.ComplementIn(addrset.IPv4), "any IPv4 address except IPv4 of office (4,294,967,040 IPv4 addresses)"},
		{addrset.MustParse("203.0.113.7"), "203.0.113.7 (1 IPv4 address)"},
		{addrset.MustParse("203.0.113.7", "2001:db8::7"), "203.0.113.7 and 2001:db8::7 (1 IPv4 address, 1 of IPv6)"},
		{addrset.MustParse("203.0.113.7").Complement(), "not 203.0.113.7 (4,294,967,295 IPv4 addresses, 2^128 of IPv6)"},
		{addrset.MustParse("10.20.0.0/24", "2001:db8:20::/64"), "the networks of lan (256 IPv4 addresses, 2^64 of IPv6)"},
		{addrset.MustParse("10.30.0.0/16"), "vms (65,536 IPv4 addresses)"},
		{addrset.MustParse("10.20.0.1", "198.51.100.1", "2001:db8::1"), "this host (2 IPv4 addresses, 1 of IPv6)"},
		{office.Union(partners), "partners and office (336 IPv4 addresses, 2^80 of IPv6)"},
		{office.Union(partners).Complement(), "anywhere except partners and office (4,294,966,960 IPv4 addresses, about 2^128 of IPv6)"},
		{partners.Difference(banned), "partners except IPv4 of banned (76 IPv4 addresses)"},
		{europe, "europe"},
		{europe.Difference(office), "europe"},
		{europe.Difference(countries("IT")), "europe except IT"},
		{countries("IT"), "IT"},
		{countries("IT", "FR", "NO"), "FR, IT and NO"},
		{countries("US", "CA").Complement(), "anywhere except US and CA"},
		{europe.Union(office), "europe and office"},
		{europe.Difference(banned).Union(partners).Difference(addrset.MustParse("192.0.2.130")), ""},
		{many.Set(), "40 ranges, the first 198.18.0.7 (40 IPv4 addresses in all)"},
	} {
		got := n.Of(test.set)
		if text := got.String(); !strings.HasPrefix(text, test.want) {
			t.Errorf("got  %s\nwant %s", text, test.want)
		}
		if got.Everybody != test.set.Equal(addrset.All()) {
			t.Errorf("%s: everybody is %v", got, got.Everybody)
		}
	}
	if n.Err() != nil {
		t.Error(n.Err())
	}
}

// A set that a policy changes is told from what it was, by the file or by which is which.
func TestNamesOfTwo(t *testing.T) {
	const text = "version: 1\nsets: { office: [203.0.113.0/24%s] }\ninput: { default: drop, rules: [allow ssh from office] }\n"
	for file, want := range map[string]string{
		"new.yaml":    "office of new.yaml except office of policy.yaml",
		"policy.yaml": "office of the new policy except office of the old policy",
	} {
		d, err := Compare(t.Context(), compiled(t, resolved(t, "policy.yaml", fmt.Sprintf(text, ""))), compiled(t, resolved(t, file, fmt.Sprintf(text, ", 192.0.2.0/28, 192.0.2.32/28, 192.0.2.64/28, 192.0.2.96/28"))), geo.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Changes) != 1 || d.Changes[0].From.Name != want {
			t.Errorf("%s: %+v", file, d.Changes)
		}
	}
}

// A name that claims to be exact is read back as the set operations that its
// words say, and must give the set that was named.
func TestNamesMeanTheSet(t *testing.T) {
	r := resolved(t, "policy.yaml", namedPolicy)
	n := NewNames(geo.Snapshot, r)
	d, err := geo.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	countries, err := d.ByCountry()
	if err != nil {
		t.Fatal(err)
	}
	random := testseed.Rand(t)
	pool := []addrset.Set{addrset.All(), addrset.All().Only4()}
	for _, s := range r.Policy.Sets {
		pool = append(pool, r.Sets[s.Name].Addresses)
	}
	for _, code := range []string{"IT", "FR", "VA", "SM", "US", "NO"} {
		pool = append(pool, countries[code])
	}
	pick := func() addrset.Set { return pool[random.IntN(len(pool))] }
	exact := 0
	for range 120 {
		s := pick()
		for range random.IntN(4) {
			switch random.IntN(4) {
			case 0:
				s = s.Union(pick())
			case 1:
				s = s.Difference(pick())
			case 2:
				s = s.Intersect(pick())
			case 3:
				s = s.Complement()
			}
		}
		name := n.Of(s)
		if !name.Exact {
			continue
		}
		exact++
		if back := meant(t, name.Text, r, countries); !back.Equal(s) {
			t.Errorf("%s means %d and %d ranges, the set has %d and %d", name.Text, back.Len4(), back.Len6(), s.Len4(), s.Len6())
		}
	}
	if exact < 40 {
		t.Errorf("only %d of 120 sets had a name", exact)
	}
}

// meant reads the words of a name.
func meant(t *testing.T, text string, r *resolve.Resolved, countries map[string]addrset.Set) addrset.Set {
	t.Helper()
	whole := addrset.All()
	list := func(text string) (out addrset.Set) {
		for _, item := range strings.FieldsFunc(strings.ReplaceAll(text, " and ", ","), func(r rune) bool { return r == ',' }) {
			out = out.Union(meantOne(t, strings.TrimSpace(item), r, countries))
		}
		return out
	}
	except := func(text string) addrset.Set {
		name, but, has := strings.Cut(text, " except ")
		s := list(name)
		if has {
			s = s.Difference(list(but))
		}
		return s
	}
	for prefix, of := range map[string]addrset.Set{
		"not ": whole, "anywhere except ": whole, "any IPv4 address except ": whole.Only4(), "any IPv6 address except ": whole.Only6(),
	} {
		if rest, is := strings.CutPrefix(text, prefix); is {
			return of.Difference(list(rest))
		}
	}
	if rest, is := strings.CutPrefix(text, "what is in "); is {
		a, b, _ := strings.Cut(rest, " and in ")
		return list(a).Intersect(list(b))
	}
	if first, rest, is := strings.Cut(text, ", and "); is {
		return list(first).Union(except(rest))
	}
	return except(text)
}

func meantOne(t *testing.T, text string, r *resolve.Resolved, countries map[string]addrset.Set) addrset.Set {
	t.Helper()
	switch text {
	case "nobody":
		return addrset.Set{}
	case "anywhere":
		return addrset.All()
	case "any IPv4 address":
		return addrset.All().Only4()
	case "any IPv6 address":
		return addrset.All().Only6()
	case "this host":
		return ownAddresses(r)
	}
	if rest, is := strings.CutPrefix(text, "IPv4 of "); is {
		return meantOne(t, rest, r, countries).Only4()
	}
	if rest, is := strings.CutPrefix(text, "IPv6 of "); is {
		return meantOne(t, rest, r, countries).Only6()
	}
	name, _ := strings.CutPrefix(text, "the networks of ")
	if s := r.Sets[name]; s != nil {
		return s.Addresses
	}
	if z := r.Zones[name]; z != nil {
		return z.Networks
	}
	if s, ok := countries[text]; ok {
		return s
	}
	if code, is := strings.CutPrefix(text, "continent "); is {
		var b addrset.Builder
		for c, s := range countries {
			if geo.CountryOf(c).Continent == code {
				b.AddSet(s)
			}
		}
		return b.Set()
	}
	parsed, err := addrset.ParseRange(text)
	if err != nil {
		t.Fatalf("%q is no name: %v", text, err)
	}
	return addrset.Of(parsed)
}
