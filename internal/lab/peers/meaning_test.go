package peers

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
)

// byHand are the peers that say all that the examples do.
var byHand = []string{"nftables-set", "ipset (iptables-legacy)", "ipset (iptables-nft)"}

// eachByHand loads what every one of them says of a policy.
func eachByHand(t *testing.T, text string, build func(*testnet.Net, string) (*measure.Lab, error), test func(*testing.T, *measure.Lab)) {
	t.Helper()
	measure.Require(t)
	net := testnet.New(t)
	meaning := FromPolicy(resolved(t, text))
	for i, name := range byHand {
		t.Run(name, func(t *testing.T) {
			p, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			testnet.Require(t, p[0].Needs()...)
			l, err := build(net, fmt.Sprintf("hand%d", i))
			if err != nil {
				t.Fatal(err)
			}
			if without := p[0].Without(meaning); len(without) > 0 {
				t.Errorf("it leaves away %v", without)
			}
			if err := p[0].Load(t.Context(), l.Namespace, meaning); err != nil {
				t.Fatal(err)
			}
			test(t, l)
		})
	}
}

// sent is one batch of SYNs and how many of them have to come through.
type sent struct {
	from string
	to   netip.AddrPort
	want int
}

func (s sent) by(t *testing.T, l *measure.Lab) {
	t.Helper()
	const batch = 64
	source, err := measure.Load(measure.TCP("S", []netip.Addr{netip.MustParseAddr(s.from)}, s.to))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	run, err := l.Inject(t.Context(), source, batch)
	if err != nil {
		t.Fatal(err)
	}
	if run.Survived != s.want || run.Packets != batch {
		t.Errorf("from %s to %s: %d of %d came through, want %d", s.from, s.to, run.Survived, run.Packets, s.want)
	}
}

// Who is over a limit is banned from everything, unless nothing bans it.
func TestLimitsBan(t *testing.T) {
	const burst = 3
	eachByHand(t, `version: 1
never-ban: [203.0.113.9, "2001:db8:9::/64"]
input:
  default: drop
  rules:
    - allow tcp/1001 limit 3/1h per source then ban 10m
    - allow [tcp/1002, tcp/1003, tcp/1004]
`, measure.NewLab, func(t *testing.T, l *measure.Lab) {
		for _, from := range []struct {
			family                 addrset.Family
			bad, neighbour, spared string
		}{
			{addrset.IPv4, "203.0.113.7", "203.0.113.8", "203.0.113.9"},
			{addrset.IPv6, "2001:db8:5::7", "2001:db8:6::7", "2001:db8:9::7"},
		} {
			limited, open := measure.Target(from.family, 1001), measure.Target(from.family, 1003)
			for _, s := range []sent{
				{from.bad, open, 64},
				{from.bad, limited, burst},
				{from.bad, open, 0},
				{from.neighbour, open, 64},
				{from.spared, limited, burst},
				{from.spared, open, 64},
			} {
				s.by(t, l)
			}
		}
	})
}

// A published port is that of before the destination was rewritten, and nothing else
// comes by the rule.
func TestPublishedPorts(t *testing.T) {
	eachByHand(t, `version: 1
sets: {office: [203.0.113.0/24, "2001:db8:77::/48"]}
forward:
  default: drop
  rules:
    - allow published tcp/8080
    - allow published tcp/9000 from office
`, measure.NewForwardLab, func(t *testing.T, l *measure.Lab) {
		if err := l.Nft(`table inet engine { chain pre { type nat hook prerouting priority dstnat;
			fib daddr type local tcp dport { 8080, 9000, 9001 } dnat ip to 10.77.0.80:80
			fib daddr type local tcp dport { 8080, 9000, 9001 } dnat ip6 to [2001:db8:77::80]:80
		}; }`); err != nil {
			t.Fatal(err)
		}
		for _, from := range []struct {
			family           addrset.Family
			office, stranger string
		}{{addrset.IPv4, "203.0.113.7", "192.0.2.7"}, {addrset.IPv6, "2001:db8:77::7", "2001:db8:5::7"}} {
			for _, s := range []sent{
				{from.stranger, measure.Target(from.family, 8080), 64},
				{from.stranger, measure.Target(from.family, 9000), 0},
				{from.office, measure.Target(from.family, 9000), 64},
				{from.office, measure.Target(from.family, 9001), 0},
				{from.office, measure.Behind(from.family, 80), 0},
				{from.office, measure.Behind(from.family, 8080), 0},
			} {
				s.by(t, l)
			}
		}
	})
}

// What is asked by a verdict map or a set of open ports is what the rules say one by
// one, in their order.
func TestOrderOfPorts(t *testing.T) {
	eachByHand(t, `version: 1
sets: {office: [203.0.113.0/24]}
input:
  default: drop
  rules:
    - allow [tcp/1001, tcp/1002]
    - allow tcp/1003
    - drop tcp/1002
    - drop tcp/1004 from office
    - allow [tcp/1004, tcp/1005]
    - reject tcp/1006
    - allow tcp/1007 from office
    - drop any from 192.0.2.9
    - allow tcp/1007-1009
    - drop tcp/1008
`, measure.NewLab, func(t *testing.T, l *measure.Lab) {
		for from, allowed := range map[string][]uint16{
			"203.0.113.7": {1001, 1002, 1003, 1005, 1007, 1008, 1009},
			"192.0.2.7":   {1001, 1002, 1003, 1004, 1005, 1007, 1008, 1009},
			"192.0.2.9":   {1001, 1002, 1003, 1004, 1005},
		} {
			for port := uint16(1001); port <= 1010; port++ {
				want := 0
				if slices.Contains(allowed, port) {
					want = 64
				}
				sent{from, measure.Target(addrset.IPv4, port), want}.by(t, l)
			}
		}
	})
}

// Endpoints are said by addresses and ports where each address has each port.
func TestEveryPort(t *testing.T) {
	bypass := func(list string) []everywhere {
		m := FromPolicy(resolved(t, "version: 1\nsets: {listeners: {endpoints: ["+list+"]}}\ninput: {default: drop}\ntracking: {bypass: [\"[tcp/1-10000, udp/1-10000] to listeners\"]}\n"))
		out, is := everyPort(m.Bypass[0].Endpoints)
		if !is {
			return nil
		}
		return out
	}
	if got := bypass(`"198.51.100.1 tcp/80", "198.51.100.2 tcp/81", "198.51.100.1 tcp/81"`); got != nil {
		t.Errorf("%v", got)
	}
	got := bypass(`"198.51.100.1 tcp/80", "198.51.100.2 tcp/81", "198.51.100.1 tcp/81", "198.51.100.2 tcp/80", "198.51.100.1 udp/443", "[2001:db8::1] tcp/443", "[2001:db8::1] tcp/80"`)
	var texts []string
	for _, e := range got {
		texts = append(texts, fmt.Sprintf("%s %s %s", protocolName(e.protocol), nftList(e.addresses), nftPorts(e.ports)))
	}
	want := []string{"tcp 2001:db8::1 { 80, 443 }", "tcp { 198.51.100.1, 198.51.100.2 } 80-81", "udp 198.51.100.1 443"}
	slices.Sort(texts)
	if !slices.Equal(texts, want) {
		t.Errorf("%q", texts)
	}
}
