package limits

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
)

// banned are n single addresses that nobody else here has.
func banned(n int) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		out[i] = netip.AddrFrom4([4]byte{192, 0, 2 + byte(i/250), 1 + byte(i%250)})
	}
	return out
}

func list[T fmt.Stringer](of []T) string {
	texts := make([]string, len(of))
	for i, o := range of {
		texts[i] = o.String()
	}
	return strings.Join(texts, ", ")
}

const manyBans = 650

const (
	handWritten = "written by hand"
	handAgain   = "written by hand, again"
)

const establishedPolicy = `version: 1
sets:
  banned: [%s]
  visitors: {continents: [EU]}
ban: [banned]
input:
  default: drop
  rules:
    - allow [http, https] from visitors
    - allow ssh from 203.0.113.0/24
    - allow ping limit 50/second
output:
  default: allow
`

const establishedByHand = `table inet hand {
	set banned { type ipv4_addr; elements = { %s }; }
	set visitors4 { type ipv4_addr; flags interval; elements = { %s }; }
	set visitors6 { type ipv6_addr; flags interval; elements = { %s }; }
	chain input {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
		ct state invalid drop
		iif lo accept
		ip saddr @banned drop
		tcp dport { 80, 443 } ip saddr @visitors4 accept
		tcp dport { 80, 443 } ip6 saddr @visitors6 accept
		tcp dport 22 ip saddr 203.0.113.0/24 accept
		icmp type echo-request limit rate 50/second accept
		icmp type { destination-unreachable, time-exceeded, parameter-problem } accept
		icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept
		icmpv6 type echo-request limit rate 50/second accept
	}
}
`

// established compares what a packet of a running connection pays: under a whole
// policy, and under what one would write by hand to make it cheap.
func (b *bench) established() (lookup, error) {
	// By no rule is this source let in: only its connection is.
	from := measure.ByAddress(b.world.blocked.Only4(), addrset.IPv4, 1, b.seed)[0]
	to := measure.Target(addrset.IPv4, 443)
	connected := func(p peer) peer {
		load := p.load
		p.load = func(b *bench, l *measure.Lab, s addrset.Set) error {
			if err := load(b, l, s); err != nil {
				return err
			}
			return l.Connect(from, measure.SourcePort, to)
		}
		return p
	}
	bans := list(banned(manyBans))
	byHand := rules(fmt.Sprintf(establishedByHand, bans, peers.Elements(b.world.europe.Only4().Ranges()), peers.Elements(b.world.europe.Only6().Ranges())))
	return b.costs("ACK of a connection", "One TCP connection, ACK segments, 650 bans, Europe's ranges for the web.", contest{
		peers: []peer{
			{name: bare, load: loadNothing},
			connected(peer{name: handWritten, load: byHand}),
			connected(peer{name: handAgain, load: byHand}),
			connected(peer{name: ours, load: policyOf("established.yaml", fmt.Sprintf(establishedPolicy, bans))}),
		},
		cases:  []measure.Case{{Traffic: measure.TCP("A", []netip.Addr{from}, to), Survives: measure.All}},
		rounds: 101,
	})
}
