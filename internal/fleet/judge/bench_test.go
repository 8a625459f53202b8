package judge

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/fleet/inventory"
	"sluice/internal/language/policy"
)

// fleet is one of so many classes, each with rules by countries, and hosts with facts of their own.
func fleet(tb testing.TB, roles, hosts int, countries string) (*Judge, *Asked) {
	tb.Helper()
	sets := ""
	for r := range roles {
		sets += fmt.Sprintf("  r%d: { hosts: role=r%d, within: [10.0.0.0/8] }\n", r, r)
	}
	files := Files{
		"fleet.yaml":   Text([]byte("version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets:\n" + sets)),
		"parts/0.yaml": Text([]byte("version: 1\nsets: {europe: {" + countries + "}, office: [198.51.100.0/24]}\ninput: {default: drop, rules: [allow ssh from office limit 10/minute per source]}\nexpect: [deny ssh from not office]\n")),
	}
	for r := range roles {
		files[fmt.Sprintf("parts/r%d.yaml", r)] = Text(fmt.Appendf(nil, "version: 1\nhosts: role=r%d\ninput: {rules: [allow https from europe, allow tcp/%d from r%d, allow tcp/%d]}\n", r, 4000+r, (r+1)%roles, 5000+r))
	}
	inv := &inventory.Inventory{File: "inventory.yaml"}
	facts := map[string][]byte{}
	pos := policy.Pos{File: inv.File, Line: 1, Column: 1}
	for h := range hosts {
		a := netip.AddrFrom4([4]byte{10, 200, byte(h / 250), byte(h%250 + 1)})
		name := fmt.Sprintf("h%05d", h)
		inv.Hosts = append(inv.Hosts, inventory.Host{Pos: pos, Name: name, Labels: map[string]string{"role": fmt.Sprint("r", h%roles)}, Addresses: []netip.Addr{a}, Facts: name, FactsPos: pos})
		facts[name] = fmt.Appendf(nil, `{"version":1,"known":true,"interfaces":[{"name":"lo","index":1,"addresses":["127.0.0.1/8","::1/128"],"kind":"loopback","up":true,"mtu":65536},{"name":"ens3","index":2,"addresses":["%[1]s/16","2001:db8:9::%[2]x/64","fe80::%[2]x/64"],"kind":"device","up":true,"mtu":1500}],"default-route":["ens3"],"local":["127.0.0.0/8","%[1]s/32","::1/128","2001:db8:9::%[2]x/128","fe80::%[2]x/128"],"ephemeral-from":32768,"ephemeral-to":60999,"conntrack-max":262144,"conntrack-buckets":65536,"memory-bytes":%[3]d,"resolvers":["10.200.255.1"]}`, a, h+1, 8300000000+h)
	}
	j := New(Options{State: tb.TempDir(), Lists: "trust/lists", Facts: func(name string) ([]byte, error) { return facts[name], nil }})
	return j, &Asked{Files: files, Hosts: inv, All: inv, At: "1"}
}

// BenchmarkJudge: a fleet of 30 classes, cold, and again as it is kept. The first map includes that
// the policy is read, and its hosts classified.
func BenchmarkJudge(b *testing.B) {
	for _, hosts := range []int{30, 1000} {
		b.Run(fmt.Sprintf("cold/hosts=%d", hosts), func(b *testing.B) {
			for b.Loop() {
				j, a := fleet(b, 30, hosts, "continents: [EU]")
				if c, err := j.Check(b.Context(), a, nil); err != nil || len(c.Findings) > 0 || len(c.Classes) != 30 {
					b.Fatal(c, err)
				}
			}
		})
		b.Run(fmt.Sprintf("first map/hosts=%d", hosts), func(b *testing.B) {
			for b.Loop() {
				j, a := fleet(b, 30, hosts, "continents: [EU]")
				if m, err := j.Maps(b.Context(), a, nil, "https", "", "", nil); err != nil || len(m.Of) != 30 {
					b.Fatal(m, err)
				}
			}
		})
		j, a := fleet(b, 30, hosts, "continents: [EU]")
		b.Run(fmt.Sprintf("edited/hosts=%d", hosts), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				next := edited(a, n)
				if _, err := j.Check(b.Context(), next, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("check/hosts=%d", hosts), func(b *testing.B) {
			for b.Loop() {
				if _, err := j.Check(b.Context(), a, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("cold map/hosts=%d", hosts), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				if m, err := j.Maps(b.Context(), a, nil, fmt.Sprint("tcp/", n+1), "", "", nil); err != nil || len(m.Of) != 30 {
					b.Fatal(m, err)
				}
			}
		})
		b.Run(fmt.Sprintf("map/hosts=%d", hosts), func(b *testing.B) {
			for b.Loop() {
				if m, err := j.Maps(b.Context(), a, nil, "https", "", "", nil); err != nil || len(m.Of) != 30 {
					b.Fatal(m, err)
				}
			}
		})
		b.Run(fmt.Sprintf("map of a draft that was checked/hosts=%d", hosts), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				next := edited(a, n)
				if _, err := j.Check(b.Context(), next, nil); err != nil {
					b.Fatal(err)
				}
				j.Fill(b.Context(), next, func() bool { return false })
				kept := slices.Clone(j.kept.order)
				b.StartTimer()
				m, err := j.Maps(b.Context(), next, nil, "https", "input", "", nil)
				if err != nil || len(m.Of) != 30 || !slices.Equal(kept, j.kept.order) {
					b.Fatal(m, err)
				}
			}
		})
		b.Run(fmt.Sprintf("cold reach/hosts=%d", hosts), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				if m, err := j.Reach(b.Context(), a, nil, fmt.Sprint("tcp/", n+1), nil); err != nil || len(m.Of) != 30 {
					b.Fatal(m, err)
				}
			}
		})
		b.Run(fmt.Sprintf("reach/hosts=%d", hosts), func(b *testing.B) {
			for b.Loop() {
				if m, err := j.Reach(b.Context(), a, nil, "", nil); err != nil || len(m.Of) != 30 {
					b.Fatal(m, err)
				}
			}
		})
		b.Run(fmt.Sprintf("diff/hosts=%d", hosts), func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				if d, _, err := j.Diff(b.Context(), edited(a, n), a, nil); err != nil || len(d.Changes) == 0 {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// edited is a policy of which somebody has changed a part, each time otherwise.
func edited(a *Asked, n int) *Asked {
	next := *a
	next.Files = maps.Clone(a.Files)
	next.Files["parts/r1.yaml"] = Text(fmt.Appendf(nil, "version: 1\nhosts: role=r1\ninput: {rules: [allow tcp/%d]}\n", 6000+n%1000))
	return &next
}
