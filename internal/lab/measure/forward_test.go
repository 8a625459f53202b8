package measure_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
)

// gateway drops what no rule is about, tracks, and rewrites in every way.
const gateway = `table inet t {
	counter new { }
	counter known { }
	chain input {
		type filter hook input priority 0; policy drop;
		ct state established counter name known accept
		ct state new tcp dport { 22, 2222 } counter name new accept
		ct state new udp dport 53 counter name new accept
	}
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established counter name known accept
		ct state new tcp dport 443 counter name new accept
		ct state new udp dport 443 counter name new accept
		ct state untracked accept
	}
	chain in {
		type nat hook prerouting priority dstnat;
		tcp dport 8443 dnat ip to 10.77.0.80:443
		tcp dport 8443 dnat ip6 to [2001:db8:77::80]:443
		tcp dport 2022 redirect to :2222
	}
	chain out {
		type nat hook postrouting priority srcnat;
		oifname "eth0" masquerade
	}
	chain raw {
		type filter hook prerouting priority raw;
		ip daddr 198.51.100.9 notrack ip daddr set 10.77.0.80
	}
}
`

func hosts(f addrset.Family, n int) []netip.Addr {
	set := addrset.FromPrefixes(netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:5::/64"))
	seen, out := map[netip.Addr]bool{}, []netip.Addr{}
	for _, a := range measure.ByAddress(set, f, 4*n, seed) {
		if !seen[a] && len(out) < n {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out
}

// Every way of a packet through a host that forwards: what survives is counted
// where it ends, new stays new, and known connections are those that the rules made.
func TestForwardLab(t *testing.T) {
	measure.Require(t)
	testnet.Require(t, testnet.NftNAT)
	for _, way := range []measure.Way{measure.ByLiveFrames, measure.ByPacketRing} {
		net := testnet.New(t)
		bare, rules := lab(t, measure.NewForwardLab, net, "bare", ""), lab(t, measure.NewForwardLab, net, "rules", gateway)
		if err := rules.Own(netip.MustParseAddr("198.51.100.9")); err != nil {
			t.Fatal(err)
		}
		for _, f := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
			all := hosts(f, 200)
			fresh, outside := all[:100], all[100:]
			var inside, insideFresh []measure.Flow
			for i, a := range outside {
				inside = append(inside, measure.Flow{From: measure.Behind(f, uint16(5000+i)), To: netip.AddrPortFrom(a, 443)})
				insideFresh = append(insideFresh, measure.Flow{From: measure.Behind(f, uint16(5000+i)), To: netip.AddrPortFrom(fresh[i], 443)})
			}
			for name, tc := range map[string]struct {
				traffic measure.Traffic
				known   bool
				entries int
				bare    bool // survives without rules
			}{
				"input, new":             {traffic: measure.TCP("S", fresh, measure.Target(f, 22)), bare: true},
				"input, known":           {traffic: measure.TCP("A", outside, measure.Target(f, 22)), known: true, entries: 100, bare: true},
				"input, known, udp":      {traffic: measure.UDP(outside, measure.Target(f, 53)), known: true, entries: 100, bare: true},
				"redirect here, new":     {traffic: measure.TCP("S", fresh, measure.Target(f, 2022)), bare: true},
				"redirect here, known":   {traffic: measure.TCP("A", outside, measure.Target(f, 2022)), known: true, entries: 100, bare: true},
				"forward, new":           {traffic: measure.TCP("S", fresh, measure.Behind(f, 443)), bare: true},
				"forward, known":         {traffic: measure.TCP("A", outside, measure.Behind(f, 443)), known: true, entries: 100, bare: true},
				"forward, known, udp":    {traffic: measure.UDP(outside, measure.Behind(f, 443)), known: true, entries: 100, bare: true},
				"redirect inward, new":   {traffic: measure.TCP("S", fresh, measure.Target(f, 8443)), bare: true},
				"redirect inward, known": {traffic: measure.TCP("A", outside, measure.Target(f, 8443)), known: true, entries: 100, bare: true},
				"masquerade, new":        {traffic: measure.Traffic{Flags: "S", Flows: insideFresh, In: "eth1"}, bare: true},
				"masquerade, known":      {traffic: measure.Traffic{Flags: "A", Flows: inside, In: "eth1"}, known: true, entries: 100, bare: true},
				"without state":          {traffic: measure.TCP("S", fresh, netip.MustParseAddrPort("198.51.100.9:443")), bare: true},
			} {
				switch {
				case name == "without state" && f == addrset.IPv6, strings.HasSuffix(name, "udp") && f == addrset.IPv6:
					continue
				case way == measure.ByPacketRing && (f == addrset.IPv6 || strings.HasPrefix(name, "redirect here") || strings.HasSuffix(name, "udp")):
					continue // the way in is another, not what the lab makes of it
				}
				t.Run(fmt.Sprintf("%s IPv%d %s", way, f, name), func(t *testing.T) {
					for _, l := range []*measure.Lab{bare, rules} {
						if tc.known {
							n, err := l.Establish(t.Context(), tc.traffic, way)
							if err != nil {
								t.Fatal(err)
							}
							if l == rules && n != tc.entries || l == bare && n != 0 {
								t.Errorf("%s: %d known connections, want %d with rules and none without", l.Namespace.Label(), n, tc.entries)
							}
							tc.traffic.Through = true
						}
						s, err := measure.LoadFor(tc.traffic, way)
						if err != nil {
							t.Fatal(err)
						}
						defer s.Close()
						if l == rules {
							l.Namespace.MustRun("nft", "reset", "counters", "table", "inet", "t")
						}
						for range 2 {
							run, err := l.Inject(t.Context(), s, 128)
							if err != nil {
								t.Fatal(err)
							}
							if run.Packets != 128 || run.Survived != 128 {
								t.Errorf("%s: %d of %d survived", l.Namespace.Label(), run.Survived, run.Packets)
							}
						}
						if l == rules && name != "without state" {
							counter := "new"
							if tc.known {
								counter = "known"
							}
							out := l.Namespace.MustRun("nft", "list", "counter", "inet", "t", counter)
							if want := 256; !strings.Contains(out, fmt.Sprintf("packets %d ", want)) {
								t.Errorf("%s packets, want %d of them:\n%s", counter, want, out)
							}
						}
					}
				})
			}
		}
	}
}
