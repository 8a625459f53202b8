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
	Why: `iptables does not filter IPv6, and neither does a table of nftables of family ip. A host with a
public IPv6 address and only such rules is open over IPv6. For each program that listens on all
IPv6 addresses, the doctor evaluates a new connection from the internet, and reports it if the
IPv4 rules are certain to drop it and the IPv6 rules are certain to accept it.`,
	Fix:  "Add the same rules for IPv6 (ip6tables, or a table of family inet), or do not listen on IPv6.",
	Undo: "Delete the rules.",
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
			open = append(open, found("ss -tln; "+toolOf(r), "tcp/%d (%s): dropped over IPv4 by %s, accepted over IPv6", l.At.Port(), l.Program, byText(r, got)))
		}
		if len(open) == 0 {
			return
		}
		say(Finding{
			Text:     fmt.Sprintf("%s closed over IPv4 but open over IPv6, at %s", portsAre(len(open)), v6.Destination),
			Evidence: open[:min(len(open), mostTop)],
			Fix:      []string{"the same rules for IPv6: ip6tables, or a table of family inet", "in a policy of Sluice, a rule without a family covers both"},
		})
	},
}

func portsAre(n int) string {
	if n == 1 {
		return "1 TCP port is"
	}
	return english.Plural(n, "TCP port") + " are"
}
