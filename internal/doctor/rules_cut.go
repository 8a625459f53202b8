package doctor

import (
	"fmt"

	"sluice/internal/base/packet"
)

// someEphemeral is a port that the kernel gives to whoever asks (net.ipv4.ip_local_port_range).
const someEphemeral = 40000

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
	fix, undo := letKnown(r, got.Hook, got.Chain)
	say(Finding{
		Text: fmt.Sprintf("answers of %s are dropped by %s", whose, byText(r, got)),
		Evidence: []Evidence{
			found(from, "the host queries %s", whose),
			found(toolOf(r), "%s from %s:%d to %s:%d, established, in %s: dropped in chain %s", packet.ProtocolName(p.Protocol), p.Source, p.SourcePort, p.Destination, p.Port, p.In, got.Chain),
		},
		Cost: map[bool]string{true: "5 s for each look-up", false: ""}[p.SourcePort == 53],
		Fix:  fix,
		Undo: undo,
	})
}
