package limits

import (
	"bytes"
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

// established compares what a packet of a running connection pays: under a whole
// policy, and under what one would write by hand to make it cheap.
func (b *bench) established() error {
	file, err := b.policy("established.yaml", fmt.Sprintf(`version: 1
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
`, list(banned(manyBans))))
	if err != nil {
		return err
	}
	var hand bytes.Buffer
	europe4, europe6 := b.world.europe.Only4(), b.world.europe.Only6()
	fmt.Fprintf(&hand, `table inet hand {
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
`, list(banned(manyBans)), peers.Elements(europe4.Ranges()), peers.Elements(europe6.Ranges()))

	// By no rule is this source let in: only its connection is.
	from := measure.ByAddress(b.world.blocked.Only4(), addrset.IPv4, 1, b.seed)[0]
	to := measure.Target(addrset.IPv4, 443)
	source, err := measure.Load(measure.TCP("A", []netip.Addr{from}, to))
	if err != nil {
		return err
	}
	defer source.Close()

	loadHand := func(l *measure.Lab) error { _, err := b.nft(l, hand.Bytes()); return err }
	const handWritten, handAgain = "written by hand", "written by hand, again"
	var cells []measure.Cell
	for i, v := range []struct {
		name string
		load func(*measure.Lab) error
	}{
		{bare, func(*measure.Lab) error { return nil }},
		{handWritten, loadHand},
		{handAgain, loadHand},
		{ours, func(l *measure.Lab) error { _, err := b.apply(l, file); return err }},
	} {
		l, err := measure.NewLab(b.net, fmt.Sprintf("est%d", i))
		if err != nil {
			return err
		}
		if err := v.load(l); err != nil {
			return fmt.Errorf("load %s: %w", v.name, err)
		}
		if v.name != bare {
			if err := l.Connect(from, measure.SourcePort, to); err != nil {
				return err
			}
		}
		cells = append(cells, measure.Cell{Name: v.name, Lab: l, Source: source, Survives: measure.All})
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(101), Packets: 1 << 15}, cells)
	if err != nil {
		return err
	}
	b.say("One TCP connection, ACK segments, 650 bans, Europe's ranges for the web.")
	for _, c := range r.Cells {
		b.cost("ACK of a connection", c, r.NS(c), r.Added(c, bare))
	}
	b.ratio("established packet, whole policy against a hand-written ruleset, cost of the packet", 1.05,
		r.NS(ours).Per(r.NS(handWritten)), r.NS(handAgain).Per(r.NS(handWritten)))
	b.ratio("the same, of what is added to the bare stack", 1.05,
		r.Added(ours, bare).Per(r.Added(handWritten, bare)), r.Added(handAgain, bare).Per(r.Added(handWritten, bare)))
	return nil
}
