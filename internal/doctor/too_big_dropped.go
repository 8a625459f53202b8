package doctor

import (
	"fmt"

	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

var tooBigDropped = Check{
	ID:    "too-big-dropped",
	What:  "rules drop the messages by which a sender learns that its packets are too large",
	Least: check.Warning,
	Why: `If a link on the path has a smaller MTU, its router drops the packet and reports that by ICMP
(type 3 code 4, or ICMPv6 type 2). Dropping that message makes a black hole: connections open,
small answers arrive, and large ones hang for ever. The doctor evaluates such a message about a
known connection of the host and, if the host forwards, one to a host behind it and one that
the host itself sends. It reports those that are certain to be dropped while packets of the
same connection pass.`,
	Fix: `Put "ct state established,related accept" before all rules that drop ICMP; for IPv6, accept
icmpv6 type packet-too-big as well.`,
	Undo: "Delete that rule.",
	look: func(s *Seen, say func(Finding)) {
		for _, family := range []int{4, 6} {
			p, ok := s.fromInternet(family)
			if !ok {
				continue
			}
			ways := []aWay{{packet.In, p, "to the host"}}
			if s.anyDevice(fmt.Sprintf("net.ipv%d.conf.", family), ".forwarding") {
				ways = append(ways, aWay{packet.Out, p.Mirror(), "that the host sends"})
				for _, d := range s.inside(family, p.In) {
					to := p
					to.Out, to.Destination, to.DestinationLocal = d.device.Name, d.address, packet.No
					ways = append(ways, aWay{packet.Through, to, "to hosts behind " + d.device.Name})
				}
			}
			for _, w := range ways {
				known := w.p
				known.Protocol, known.SourcePort, known.Port, known.Flags, known.State, known.Reply = packet.TCP, 443, someEphemeral, packet.ACK, packet.Established, true
				if !s.passes(known, w.way) {
					continue
				}
				r, got := s.droppedOn(tooBig(w.p), w.way)
				if r == nil {
					continue
				}
				fix, undo := letKnown(r, got.Hook, got.Chain)
				say(Finding{
					Text:     fmt.Sprintf("IPv%d packet-too-big messages %s are dropped by %s", family, w.what, byText(r, got)),
					Evidence: []Evidence{found(toolOf(r), "%s from %s to %s, related, at hook %s: dropped; tcp of the same connection: accepted", tooBigName(family), w.p.Source, w.p.Destination, got.Hook)},
					Cost:     "connections over a link with a smaller MTU hang at the first large packet",
					Fix:      fix,
					Undo:     undo,
				})
			}
		}
	},
}

// aWay is a packet, and where it goes.
type aWay struct {
	way  packet.Way
	p    packet.Packet
	what string
}

func tooBigName(family int) string {
	return map[int]string{4: "icmp type 3 code 4", 6: "icmpv6 type 2"}[family]
}
