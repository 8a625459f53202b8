package limits

import (
	"bytes"
	"fmt"
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
)

const bypassed = 100

// listener is the address and port of a bypassed service.
func listener(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)}), uint16(8000+i))
}

// bans is the second story: 650 bans and 100 services without connection state,
// as rules that every packet walks, and as a policy.
func (b *bench) bans() error {
	var services, bypass, allow, linear, accept, legacy, tables bytes.Buffer
	for i, a := range banned(manyBans) {
		fmt.Fprintf(&linear, "ip saddr %s drop\n", a)
		fmt.Fprintf(&legacy, "-A PREROUTING -s %s -j DROP\n", a)
		if i > 0 {
			tables.WriteString(", ")
		}
		tables.WriteString(a.String())
	}
	sets := fmt.Sprintf("set banned { type ipv4_addr; elements = { %s }; }\n", tables.String())
	tables.Reset()
	for i := range bypassed {
		l := listener(i)
		fmt.Fprintf(&services, "  s%d: tcp/%d\n", i, l.Port())
		fmt.Fprintf(&bypass, "    - s%d to %s\n", i, l.Addr())
		fmt.Fprintf(&allow, "    - allow s%d\n", i)
		fmt.Fprintf(&linear, "ip daddr %s tcp dport %d notrack\n", l.Addr(), l.Port())
		fmt.Fprintf(&accept, "ip daddr %s tcp dport %d accept\n", l.Addr(), l.Port())
		fmt.Fprintf(&legacy, "-A PREROUTING -d %s -p tcp --dport %d -j CT --notrack\n", l.Addr(), l.Port())
		if i > 0 {
			tables.WriteString(", ")
		}
		fmt.Fprintf(&tables, "%s . %d", l.Addr(), l.Port())
	}
	sets += fmt.Sprintf("set bypass { type ipv4_addr . inet_service; elements = { %s }; }\n", tables.String())
	file, err := b.policy("bans.yaml", fmt.Sprintf(`version: 1
sets:
  banned: [%s]
ban: [banned]
services:
%stracking:
  bypass:
%sinput:
  default: drop
  rules:
%soutput:
  default: allow
`, list(banned(manyBans)), services.String(), bypass.String(), allow.String()))
	if err != nil {
		return err
	}
	const (
		rawChain   = "chain prerouting { type filter hook prerouting priority raw; policy accept;\n"
		hostChain  = "chain input { type filter hook input priority filter; policy drop;\nct state established,related accept\niif lo accept\n"
		asRules    = "linear nftables rules"
		asRules2   = "linear nftables rules, again"
		asIPTables = "linear iptables rules, bans and NOTRACK alone"
		asSets     = "one hash set each, by hand"
	)
	nft := func(text string) func(*measure.Lab) error {
		return func(l *measure.Lab) error { _, err := b.nft(l, []byte(text)); return err }
	}
	linearText := "table inet linear {\n" + rawChain + linear.String() + "}\n" + hostChain + accept.String() + "}\n}\n"
	variants := []struct {
		name string
		load func(*measure.Lab) error
	}{
		{bare, func(*measure.Lab) error { return nil }},
		{asRules, nft(linearText)},
		{asRules2, nft(linearText)},
		{asIPTables, func(l *measure.Lab) error {
			_, err := b.inside(l, []byte("*raw\n"+legacy.String()+"COMMIT\n"), "iptables-legacy-restore")
			return err
		}},
		{asSets, nft("table inet sets {\n" + sets + rawChain + "ip saddr @banned drop\nip daddr . tcp dport @bypass notrack\n}\n" + hostChain + "ip daddr . tcp dport @bypass accept\n}\n}\n")},
		{ours, func(l *measure.Lab) error { _, err := b.apply(l, file); return err }},
	}
	var flows []measure.Flow
	for i, from := range measure.ByAddress(b.world.europe, addrset.IPv4, measure.Sources, b.seed) {
		flows = append(flows, measure.Flow{From: netip.AddrPortFrom(from, measure.SourcePort), To: listener(i % bypassed)})
	}
	source, err := measure.Load(measure.Traffic{Flags: "A", Flows: flows})
	if err != nil {
		return err
	}
	defer source.Close()
	var cells []measure.Cell
	for i, v := range variants {
		l, err := measure.NewLab(b.net, fmt.Sprintf("bans%d", i))
		if err != nil {
			return err
		}
		for i := range bypassed {
			if err := l.Own(listener(i).Addr()); err != nil {
				return err
			}
		}
		if err := v.load(l); err != nil {
			if v.name != asIPTables {
				return fmt.Errorf("load %s: %w", v.name, err)
			}
			b.say("%s: left out: %s", v.name, firstLine(err))
			continue
		}
		cells = append(cells, measure.Cell{Name: v.name, Lab: l, Source: source, Survives: measure.All})
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(41), Packets: 1 << 15}, cells)
	if err != nil {
		return err
	}
	b.say("Segments to the bypassed services, from 65,536 addresses that are not banned.")
	for _, c := range r.Cells {
		b.cost("ACK to a service", c, r.NS(c), r.Added(c, bare))
	}
	b.ratio("650 bans + 100 bypass services, added per packet against the same as linear nftables rules", 0.01,
		r.Added(ours, bare).Per(r.Added(asRules, bare)), r.Added(asRules2, bare).Per(r.Added(asRules, bare)))
	b.ratio("the same, against one hash set each", 0, r.Added(ours, bare).Per(r.Added(asSets, bare)), r.Added(asRules2, bare).Per(r.Added(asRules, bare)))
	return nil
}
