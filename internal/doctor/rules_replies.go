package doctor

import (
	"fmt"
	"net/netip"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

// someEphemeral is a port that the kernel gives to who asks (net.ipv4.ip_local_port_range).
const someEphemeral = 40000

var repliesCut = Check{
	ID:    "replies-cut",
	What:  "rules drop the answers to what the host itself asks",
	Least: check.Error,
	Why: `An answer of a name server that a rule drops costs five seconds for each look-up, then
the next server is asked; ssh and mail look names up for each connection. It happens where a
block by country or by address stands in a base chain of its own: an accept in an earlier
chain does not end a packet's way, so "established" in another chain does not help. The
answers of the host's name servers, time servers and package mirrors, and those of its open
connections, are asked of every ruleset; said where one surely drops them.`,
	Mend: `Decide answers first in that chain: "ct state established,related accept" as its first
rule, or one chain for both.`,
	Undo: "Take that rule away.",
	look: func(s *Seen, say func(Finding)) {
		told := map[string]bool{}
		for _, server := range s.Servers {
			if server.Address.IsLoopback() || s.own(server.Address) {
				continue
			}
			p, ok := s.arrives(server.Address)
			if !ok {
				continue
			}
			p.Protocol, p.SourcePort, p.Port = server.Protocol, server.Port, someEphemeral
			if server.From != 0 {
				p.Port = server.From
			}
			s.cut(p, fmt.Sprintf("%s %s", server.What, server.Address), server.Why, told, say)
		}
		for _, c := range s.Outgoing {
			p, ok := s.arrives(c.Remote.Addr())
			if !ok {
				continue
			}
			p.Protocol, p.SourcePort, p.Port, p.Flags = packet.TCP, c.Remote.Port(), c.Local.Port(), packet.ACK
			s.cut(p, fmt.Sprintf("%s, which %s is connected to", netip.AddrPortFrom(c.Remote.Addr(), c.Remote.Port()), c.Program), "ss -tn", told, say)
		}
	},
}

// cut says where an answer is dropped.
func (s *Seen) cut(p packet.Packet, whose, from string, told map[string]bool, say func(Finding)) {
	p.State, p.Reply = packet.Established, true
	if p.Protocol == packet.TCP {
		p.Flags = packet.ACK
	}
	r, got := s.dropped(p)
	if r == nil || told[whose] {
		return
	}
	told[whose] = true
	mend, undo := letKnown(r, got.Hook, got.Chain)
	say(Finding{
		Text: fmt.Sprintf("the answers of %s are dropped by %s", whose, byText(r, got)),
		Evidence: []Evidence{
			found(from, "the host asks %s", whose),
			found(toolOf(r), "%s from %s:%d to %s:%d, established, in %s: dropped in chain %s", packet.ProtocolName(p.Protocol), p.Source, p.SourcePort, p.Destination, p.Port, p.In, got.Chain),
		},
		Cost: map[bool]string{true: "5 s for each look-up that asks it", false: ""}[p.SourcePort == 53],
		Mend: mend,
		Undo: undo,
	})
}

var ipv6Open = Check{
	ID:    "ipv6-open",
	What:  "what is closed over IPv4 is open over IPv6",
	Least: check.Warning,
	Why: `iptables says nothing of IPv6, and a table of nftables of family ip neither: a host that
has a public address of IPv6 and such rules alone is open there. Asked is what listens at every
address of IPv6: a new connection from the internet that the rules of IPv4 surely drop, and
those of IPv6 surely let in.`,
	Mend: "The same rules for IPv6 (ip6tables, or a table of family inet), or no listening there.",
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
			Mend:     []string{"the same rules for IPv6: ip6tables, or a table of family inet", "in a policy of Sluice a rule without a family is of both"},
		})
	},
}

func portsAre(n int) string {
	if n == 1 {
		return "1 TCP port is"
	}
	return english.Plural(n, "TCP port") + " are"
}
