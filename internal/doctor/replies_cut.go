package doctor

import (
	"fmt"
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

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
	Fix: `Decide answers first in that chain: "ct state established,related accept" as its first
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
