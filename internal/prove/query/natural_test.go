package query

import (
	"net/netip"
	"testing"

	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// TestNatural: the interface of the default route comes first, though another is
// before it by name, and no end is an address of the host but its own one there.
func TestNatural(t *testing.T) {
	prefix := netip.MustParsePrefix
	facts := host.Facts{
		Known: true, DefaultRoute: []string{"wan0"}, Forwarding4: true,
		Interfaces: []host.Interface{
			{Name: "lan0", Addresses: []netip.Prefix{prefix("10.20.0.1/24")}},
			{Name: "wan0", Addresses: []netip.Prefix{prefix("198.51.100.1/24")}},
		},
	}
	for _, c := range []struct {
		way      reach.Way
		from, to string // sets of the question; "": anything
		in, out  string
		want     string // of the ends
	}{
		{reach.In, "203.0.113.0/24", "", "wan0", "", "203.0.113.7 to 198.51.100.1"},
		{reach.In, "10.20.0.0/24", "", "lan0", "", "10.20.0.2 to 10.20.0.1"},
		{reach.Through, "203.0.113.0/24", "10.20.0.0/24", "wan0", "lan0", "203.0.113.7 to 10.20.0.2"},
		{reach.Through, "10.20.0.0/24", "203.0.113.0/24", "lan0", "wan0", "10.20.0.2 to 203.0.113.7"},
		{reach.Out, "", "203.0.113.0/24", "", "wan0", "198.51.100.1 to 203.0.113.7"},
	} {
		p, err := policy.LoadData("p.yaml", []byte("version: 1\nzones:\n  wan: { interfaces: [wan0] }\n  lan: { interfaces: [lan0] }\ninput:\n  default: drop\n  rules:\n    - allow ssh in lan\n    - allow http in wan\nforward:\n  default: drop\n  rules:\n    - allow any from 10.20.0.0/24 in lan out wan\noutput:\n  default: allow\n  rules:\n    - reject smtp out lan\n"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := resolve.Resolve(p, resolve.Options{Facts: facts, Geo: geo.Snapshot})
		if err != nil {
			t.Fatal(err)
		}
		compiled := compiled(t, r)
		q, err := Words{From: c.from, To: c.to, Hook: string(c.way)}.way(r, c.way, false)
		if err != nil {
			t.Fatal(err)
		}
		u := reach.NewUniverse(reach.Options{Own: compiled.own(), Questions: q, Settled: true}, compiled.Program)
		within := region(u, q, c.way)
		got := Natural(u, within, u.Witness(c.way, within), c.way, facts)
		if ends := got.Source.String() + " to " + got.Destination.String(); ends != c.want || got.In != c.in || got.Out != c.out || !u.Holds(within, got) {
			t.Errorf("%s from %q to %q: got %s in %s out %s, want %s in %s out %s", c.way, c.from, c.to, ends, got.In, got.Out, c.want, c.in, c.out)
		}
	}
}
