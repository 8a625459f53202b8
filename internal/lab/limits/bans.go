package limits

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
)

const bypassed = 100

// listener is the address and port of a bypassed service.
func listener(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)}), uint16(8000+i))
}

const (
	asRules      = "linear nftables rules"
	asRulesAgain = "linear nftables rules, again"
	asIPTables   = "linear iptables rules, bans and NOTRACK alone"
	asSets       = "one hash set each, by hand"
)

const bansPolicy = `version: 1
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
`

// bansByHand is a ruleset with its sets, what it does before tracking and what it accepts.
const bansByHand = `table inet hand {
%schain prerouting { type filter hook prerouting priority raw; policy accept;
%s}
chain input { type filter hook input priority filter; policy drop;
ct state established,related accept
iif lo accept
%s}
}
`

const setsByHand = `set banned { type ipv4_addr; elements = { %s }; }
set bypass { type ipv4_addr . inet_service; elements = { %s }; }
`

// bans is the second story: 650 bans and 100 services without connection state,
// as rules that every packet walks, and as a policy.
func (b *bench) bans() (lookup, error) {
	var services, bypass, allow, linear, accept, legacy strings.Builder
	bans := banned(manyBans)
	for _, a := range bans {
		fmt.Fprintf(&linear, "ip saddr %s drop\n", a)
		fmt.Fprintf(&legacy, "-A PREROUTING -s %s -j DROP\n", a)
	}
	var own []netip.Addr
	var listeners []string
	for i := range bypassed {
		l := listener(i)
		own = append(own, l.Addr())
		listeners = append(listeners, fmt.Sprintf("%s . %d", l.Addr(), l.Port()))
		fmt.Fprintf(&services, "  s%d: tcp/%d\n", i, l.Port())
		fmt.Fprintf(&bypass, "    - s%d to %s\n", i, l.Addr())
		fmt.Fprintf(&allow, "    - allow s%d\n", i)
		fmt.Fprintf(&linear, "ip daddr %s tcp dport %d notrack\n", l.Addr(), l.Port())
		fmt.Fprintf(&accept, "ip daddr %s tcp dport %d accept\n", l.Addr(), l.Port())
		fmt.Fprintf(&legacy, "-A PREROUTING -d %s -p tcp --dport %d -j CT --notrack\n", l.Addr(), l.Port())
	}
	var flows []measure.Flow
	for i, from := range measure.ByAddress(b.world.europe, addrset.IPv4, measure.Sources, b.seed) {
		flows = append(flows, measure.Flow{From: netip.AddrPortFrom(from, measure.SourcePort), To: listener(i % bypassed)})
	}
	linearRules := rules(fmt.Sprintf(bansByHand, "", linear.String(), accept.String()))
	return b.costs("ACK to a service", "Segments to the bypassed services, from 65,536 addresses that are not banned.", contest{
		peers: []peer{
			{name: bare, load: loadNothing},
			{name: asRules, load: linearRules},
			{name: asRulesAgain, load: linearRules},
			{name: asIPTables, optional: true, load: func(b *bench, l *measure.Lab, _ addrset.Set) error {
				_, err := b.inside(l, []byte("*raw\n"+legacy.String()+"COMMIT\n"), "iptables-legacy-restore")
				return err
			}},
			{name: asSets, load: rules(fmt.Sprintf(bansByHand, fmt.Sprintf(setsByHand, list(bans), strings.Join(listeners, ", ")),
				"ip saddr @banned drop\nip daddr . tcp dport @bypass notrack\n", "ip daddr . tcp dport @bypass accept\n"))},
			{name: ours, load: policyOf("bans.yaml", fmt.Sprintf(bansPolicy, list(bans), services.String(), bypass.String(), allow.String()))},
		},
		cases:  []measure.Case{{Traffic: measure.Traffic{Flags: "A", Flows: flows}, Survives: measure.All}},
		own:    own,
		rounds: 41,
	})
}
