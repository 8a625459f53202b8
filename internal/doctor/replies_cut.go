package doctor

import (
	"fmt"
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

var repliesCut = Check{
	ID:    "replies-cut",
	What:  "rules drop the answers to the host's own requests",
	Least: check.Error,
	Why: `If a rule drops the answer of a name server, each look-up takes five seconds until the next
server is tried; ssh and mail look up names for each connection. This happens when a block by
country or by address is in a base chain of its own: an accept in an earlier chain does not
stop later chains, so "established" in another chain does not help. The doctor evaluates, in
every ruleset, the answers of the host's name servers, time servers and package mirrors, and
packets of its open connections. It reports those that are certain to be dropped.`,
	Fix: `Accept answers first in that chain: "ct state established,related accept" as its first rule. Or
use one chain for both.`,
	Undo: "Delete that rule.",
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
