package doctor

import (
	"fmt"
	"net/netip"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

var ipv6Open = Check{
	ID:    "ipv6-open",
	What:  "what is closed over IPv4 is open over IPv6",
	Least: check.Warning,
	Why: `iptables says nothing of IPv6, and a table of nftables of family ip neither: a host that
has a public address of IPv6 and such rules alone is open there. Asked is what listens at every
address of IPv6: a new connection from the internet that the rules of IPv4 surely drop, and
those of IPv6 surely let in.`,
	Fix:  "The same rules for IPv6 (ip6tables, or a table of family inet), or no listening there.",
	Undo: "Take the rules away.",
	look: func(s *Seen, say func(Finding)) {
		v4, ok4 := s.arrives(netip.AddrFrom4([4]byte{1, 1, 1, 1}))
		v6, ok6 := s.arrives(netip.AddrFrom16([16]byte{0x26, 0x06, 0x47, 0, 0x47, 0, 15: 0x11}))
		if !ok4 || !ok6 || !v6.Destination.IsGlobalUnicast() || v6.Destination.IsPrivate() {
			return
		}
		var open []Evidence
		for _, l := range s.Listening {
			if !l.At.Addr().Is6() || !l.At.Addr().IsUnspecified() {
				continue
			}
			for _, p := range []*packet.Packet{&v4, &v6} {
				p.Protocol, p.SourcePort, p.Port, p.Flags, p.State = packet.TCP, someEphemeral, l.At.Port(), packet.SYN, packet.New
			}
			r, got := s.dropped(v4)
			if r == nil || !s.passes(v6, packet.In) {
				continue
			}
			open = append(open, found("ss -tln; "+toolOf(r), "tcp/%d (%s): over IPv4 dropped by %s, over IPv6 let in", l.At.Port(), l.Program, byText(r, got)))
		}
		if len(open) == 0 {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("%s closed over IPv4 and open over IPv6, at %s", portsAre(len(open)), v6.Destination),
			Evidence: open[:min(len(open), mostTop)],
			Fix:      []string{"the same rules for IPv6: ip6tables, or a table of family inet", "in a policy of Sluice a rule without a family is of both"},
		})
	},
}

func portsAre(n int) string {
	if n == 1 {
		return "1 TCP port is"
	}
	return english.Plural(n, "TCP port") + " are"
}
