package query

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

func snapshotAtlas(t testing.TB) *Atlas {
	t.Helper()
	d, err := geo.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAtlas(d)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The map of the example is what its rules say, with the addresses that the data have.
func TestMap(t *testing.T) {
	text, err := os.ReadFile("../../../examples/only-europe/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, a := compiled(t, resolved(t, "policy.yaml", string(text))), snapshotAtlas(t)
	d, err := geo.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.ByCountry()
	if err != nil {
		t.Fatal(err)
	}
	own := addrset.Of(addrset.MustParseRange("198.51.100.1"), addrset.MustParseRange("2001:db8::1"), addrset.MustParseRange("10.20.0.1"))
	office := []string{"AU", "JP"} // as the data place addresses for documentation
	for _, asked := range []struct {
		service        string
		europe, others State
		office         bool
		lines          string // of Norway, then of Brazil
	}{
		{"web", Allowed, Blocked, false, "[allow web from visitors] [default: drop]"},
		{"ping", Limited, Blocked, false, "[default: drop allow ping from visitors limit 50/second] [default: drop]"},
		{"ssh", Blocked, Blocked, true, "[default: drop] [default: drop]"},
		{"[web, ssh]", Partly, Blocked, true, "[default: drop allow web from visitors] [default: drop]"},
		{"tcp", Partly, Blocked, true, "[default: drop allow web from visitors allow smtp from visitors] [default: drop]"},
	} {
		m, err := MapOf(t.Context(), c, Words{Service: asked.service}, a)
		if err != nil {
			t.Fatal(err)
		}
		lines := map[string][]string{}
		for _, p := range m.Countries {
			set := all[p.Country].Difference(own)
			want, allowed := asked.others, addrset.Set{}
			switch {
			case geo.CountryOf(p.Country).Continent == "EU":
				if want = asked.europe; want != Blocked {
					allowed = set
				}
			case asked.office && slices.Contains(office, p.Country):
				want, allowed = Partly, set.Intersect(addrset.Of(addrset.MustParseRange("203.0.113.0/24"), addrset.MustParseRange("2001:db8:77::/48")))
			}
			if p.State != want {
				t.Errorf("%s from %s is %s, want %s", asked.service, p.Country, p.State, want)
			}
			if p.Addresses != set.Count4() || p.Prefixes6 != networks48(count6(set)) || p.Allowed != allowed.Count4() || p.Allowed6 != networks48(count6(allowed)) {
				t.Errorf("%s from %s: %+v", asked.service, p.Country, p)
			}
			for _, l := range p.Lines {
				lines[p.Country] = append(lines[p.Country], l.Rule)
			}
		}
		if got := fmt.Sprint(lines["NO"], " ", lines["BR"]); got != asked.lines {
			t.Errorf("%s: %s, want %s", asked.service, got, asked.lines)
		}
		if m.Elsewhere.State != Blocked || m.Elsewhere.Addresses == 0 || m.Elsewhere.Prefixes6 == 0 {
			t.Errorf("%s from elsewhere is %+v", asked.service, m.Elsewhere)
		}
	}
	for service, want := range map[string]string{"htpp": "unknown service", "": ""} {
		if _, err := MapOf(t.Context(), c, Words{Service: service}, a); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", service, err)
		}
	}
	if _, err := MapOf(t.Context(), c, Words{Hook: "output"}, a); err == nil {
		t.Error("a map of output was drawn")
	}
}

// Of a place that thousands of lines decide of the first ones are named.
func TestMapOfManyLines(t *testing.T) {
	m, err := MapOf(t.Context(), compiled(t, resolved(t, "policy.yaml", manyNames(200))), Words{}, snapshotAtlas(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(m.Countries, m.Elsewhere) {
		if len(p.Lines) > mostLines || p.Country == "AU" && (len(p.Lines) != mostLines || p.State != Partly) {
			t.Errorf("%s %s by %d lines", p.Country, p.State, len(p.Lines))
		}
	}
}

// Where nobody knows which interface leads to a source, it has to pass by each.
func TestMapWithoutRoutes(t *testing.T) {
	const text = "version: 1\nzones: {lan: {interfaces: [lan0]}}\ninput: {default: drop, rules: [allow ssh from lan, allow http]}\n"
	for name, change := range map[string]func(*host.Facts){
		"known":   func(*host.Facts) {},
		"unknown": func(f *host.Facts) { *f = host.Facts{} },
		"none":    func(f *host.Facts) { f.DefaultRoute = nil },
	} {
		r := resolved(t, "policy.yaml", text)
		change(&r.Facts)
		for service, want := range map[string]State{"ssh": Partly, "http": Allowed, "dns": Blocked} {
			if name == "known" && service == "ssh" {
				want = Blocked
			}
			m, err := MapOf(t.Context(), compiled(t, r), Words{Service: service}, singles(netip.MustParseAddr("203.0.113.7")))
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Countries[0].State; got != want || (len(m.Notes) > 0) != (name != "known") {
				t.Errorf("%s: %s is %s, want %s: %q", name, service, got, want, m.Notes)
			}
		}
	}
}

// A machine behind the host is reached by its own address and by the host's, from the LAN too.
func TestMapOfRedirects(t *testing.T) {
	a := singles(netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("10.20.0.9"))
	for rule, want := range map[string]string{
		"allow https to 10.20.0.5":                   "10.20.0.9 allowed, 192.0.2.7 allowed, 203.0.113.7 allowed",
		"allow https from 203.0.113.7 to 10.20.0.5":  "10.20.0.9 blocked, 192.0.2.7 blocked, 203.0.113.7 allowed",
		"allow published tcp/8443":                   "10.20.0.9 partly, 192.0.2.7 partly, 203.0.113.7 partly",
		"allow published tcp/8443 from 203.0.113.7":  "10.20.0.9 blocked, 192.0.2.7 blocked, 203.0.113.7 partly",
		"allow https from 203.0.113.7 to 10.20.0.77": "10.20.0.9 blocked, 192.0.2.7 blocked, 203.0.113.7 blocked",
	} {
		text := `version: 1
zones: {wan: {interfaces: [eth0]}}
forward: {default: drop, rules: [` + rule + `]}
nat: ['redirect tcp/8443 in wan to 10.20.0.5:443']
`
		m, err := MapOf(t.Context(), compiled(t, resolved(t, "policy.yaml", text)), Words{Service: "https", Hook: "forward", To: "10.20.0.5"}, a)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range m.Countries {
			got = append(got, p.Country+" "+string(p.State))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", rule, text, want)
		}
	}
}

// What another tool leads on is reached by whoever may be led there.
func TestMapOfPublished(t *testing.T) {
	a := singles(netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("192.0.2.7"))
	for rule, want := range map[string]string{
		"allow published tcp/8080":                  "192.0.2.7 allowed, 203.0.113.7 allowed",
		"allow published tcp/8080 from 203.0.113.7": "192.0.2.7 blocked, 203.0.113.7 allowed",
		"allow http from 203.0.113.7 to 172.17.0.2": "192.0.2.7 blocked, 203.0.113.7 allowed",
		"allow tcp/8080":                            "192.0.2.7 blocked, 203.0.113.7 blocked",
	} {
		r := resolved(t, "policy.yaml", "version: 1\nforward: {default: drop, rules: ["+rule+"]}\n")
		r.Facts.Published = []host.Published{{Protocol: "tcp", Port: 8080, To: netip.MustParseAddrPort("172.17.0.2:80")}}
		m, err := MapOf(t.Context(), compiled(t, r), Words{Service: "tcp/8080", Hook: "forward", To: "198.51.100.1"}, a)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range m.Countries {
			got = append(got, p.Country+" "+string(p.State))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", rule, text, want)
		}
	}
}

// count6 is how many addresses of IPv6 a set has.
func count6(s addrset.Set) (n addrset.Number) {
	for r := range s.Only6().Each() {
		n = n.Add(addrset.NumberOf(r.To).Sub(addrset.NumberOf(r.From)).Next())
	}
	return n
}

// singles is an atlas whose countries are single addresses.
func singles(list ...netip.Addr) *Atlas {
	slices.SortFunc(list, netip.Addr.Compare)
	a := &Atlas{codes: []string{""}, rows: [2][]stretch{{{}}, {{}}}}
	for _, one := range slices.Compact(list) {
		a.codes = append(a.codes, one.String())
		rows := &a.rows[1]
		if one.Is4() {
			rows = &a.rows[0]
		}
		n := addrset.NumberOf(one)
		if last := &(*rows)[len(*rows)-1]; last.from == n {
			last.place = len(a.codes) - 1
		} else {
			*rows = append(*rows, stretch{n, len(a.codes) - 1})
		}
		*rows = append(*rows, stretch{n.Next(), 0})
	}
	return a
}

// TestMapAgainstReference asks of single addresses, each a country of its own, whether the
// reference lets in what the map says.
func TestMapAgainstReference(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 3))
	seen := map[State]int{}
	for n := 0; n < 40; {
		random := newRandomPolicy(r)
		random.nat = slices.DeleteFunc(random.nat, func(line string) bool { return !strings.HasPrefix(line, "masquerade") })
		meant, ok := parsed(t, "policy.yaml", random)
		if !ok {
			continue
		}
		n++
		var from []netip.Addr
		for range 60 {
			p, way := randomPacket(r)
			if way != reach.Out && p.Source != netip.MustParseAddr("198.51.100.1") {
				from = append(from, p.Source)
			}
		}
		a := singles(from...)
		for _, w := range []Words{
			{Service: "ssh"},
			{Service: "http"},
			{Service: "[ssh, udp/53]"},
			{Service: "tcp/20-25"},
			{Service: "icmp echo-request"},
			{Service: "ssh", Hook: "forward", To: "10.20.0.5"},
			{Service: "udp/53", Hook: "forward", To: "[10.20.0.5, 203.0.113.200]"},
		} {
			m, err := MapOf(t.Context(), compiled(t, meant), w, a)
			if err != nil {
				t.Fatalf("%v\n%s", err, random.text())
			}
			for _, p := range m.Countries {
				source := netip.MustParseAddr(p.Country)
				want := stateByReference(meant, source, w)
				got := p.State
				if seen[got]++; got == Limited {
					got = Allowed // the reference takes limits as not reached
				}
				if got != want {
					t.Fatalf("%s from %s is %s, want %s\n%s", w.String(), source, p.State, want, random.text())
				}
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("only these were met: %v", seen)
	}
}

// stateByReference is what happens to what words ask for, from one address, in by the interface
// that leads to it.
func stateByReference(r *resolve.Resolved, source netip.Addr, w Words) State {
	passing, stopped := 0, 0
	for _, one := range begun(source, w) {
		passes := false
		for _, by := range []string{"eth0", "lan0"} {
			lan := netip.MustParsePrefix("10.20.0.0/24").Contains(source)
			if lan != (by == "lan0") {
				continue
			}
			one.In = by
			way := reach.In
			if w.Hook == "forward" {
				way = reach.Through
			}
			passes = passes || Follow(r, one, way).Verdict == policy.Allow
		}
		if passes {
			passing++
		} else {
			stopped++
		}
	}
	switch {
	case passing == 0:
		return Blocked
	case stopped == 0:
		return Allowed
	}
	return Partly
}

// begun are the packets that begin what words ask for, except for their interface.
func begun(source netip.Addr, w Words) (out []packet.Packet) {
	add := func(protocol uint8, ports ...uint16) {
		ends := []string{"198.51.100.1", "10.20.0.1", "2001:db8::1"}
		if w.Hook == "forward" {
			ends = []string{"10.20.0.5"}
			if strings.HasPrefix(w.To, "[") {
				ends = append(ends, "203.0.113.200")
			}
		}
		for _, text := range ends {
			to := netip.MustParseAddr(text)
			if to.Is4() != source.Is4() {
				continue
			}
			for _, port := range ports {
				p := packet.Packet{Protocol: protocol, Source: source, Destination: to, Port: port, SourcePort: 40000, State: packet.New, Owner: -1, HopLimit: 64, SourceLocal: packet.No, DestinationLocal: packet.Yes}
				if protocol == packet.TCP {
					p.Flags = packet.SYN
				}
				if w.Hook == "forward" {
					p.DestinationLocal, p.Out = packet.No, "eth0"
					if text == "10.20.0.5" {
						p.Out = "lan0"
					}
				}
				out = append(out, p)
			}
		}
	}
	switch w.Service {
	case "ssh":
		add(packet.TCP, 22)
	case "http":
		add(packet.TCP, 80)
	case "[ssh, udp/53]":
		add(packet.TCP, 22)
		add(packet.UDP, 53)
	case "udp/53":
		add(packet.UDP, 53)
	case "tcp/20-25":
		add(packet.TCP, 20, 21, 22, 23, 24, 25)
	default:
		protocol, kind := uint8(packet.ICMP), uint8(8)
		if source.Is6() {
			protocol, kind = packet.ICMPv6, 128
		}
		add(protocol, 0)
		for i := range out {
			out[i].ICMPType = kind
		}
	}
	return out
}

func BenchmarkMap(b *testing.B) {
	text, err := os.ReadFile("../../../examples/only-europe/policy.yaml")
	if err != nil {
		b.Fatal(err)
	}
	c, a := compiled(b, resolved(b, "policy.yaml", string(text))), snapshotAtlas(b)
	for b.Loop() {
		if _, err := MapOf(b.Context(), c, Words{Service: "web"}, a); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAtlas(b *testing.B) {
	d, err := geo.Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := NewAtlas(d); err != nil {
			b.Fatal(err)
		}
	}
}
