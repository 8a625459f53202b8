package kerneltest

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// difference says in what the kernel did otherwise than the reference says; "" is
// nothing.
func (y *yard) difference(s *shot) string {
	want := s.want
	switch want.Verdict {
	case policy.Allow:
		expected := sighting{at: y.route(want.Packet.Destination), packet: want.Packet}
		switch {
		case want.Hook == policy.Input:
			expected = sighting{at: s.side, taken: true, packet: want.Packet}
		case s.side == fromHost && y.local(want.Packet.Destination):
			expected = sighting{at: fromHost, taken: true, packet: want.Packet}
		}
		if len(s.seen) != 1 || s.seen[0].answer != "" || s.seen[0].at != expected.at || s.seen[0].taken != expected.taken || !sameHeader(s.leftAs(s.seen[0].packet), want.Packet) {
			return fmt.Sprintf("should have %s", expected)
		}
	case policy.Drop:
		if len(s.seen) != 0 {
			return "should have been dropped"
		}
	case policy.Reject:
		answer, sure := s.answer()
		switch {
		case want.Answer != nil && want.Answer.Verdict != policy.Allow:
			if len(s.seen) != 0 {
				return "the reset should not have passed output"
			}
		case len(s.seen) == 0 && (answer == "" || !sure):
		case answer == "" && len(s.seen) > 0:
			return "should have been rejected without an answer, since the kernel gives none to such a packet"
		case len(s.seen) != 1 || s.seen[0].answer != answer:
			return fmt.Sprintf("should have been rejected: %s", answer)
		case want.Answer != nil:
			if got, p := s.seen[0].packet, want.Answer.Packet; got.Source != p.Source || got.Destination != p.Destination {
				return fmt.Sprintf("the reset should have been %s", header(p))
			}
		case s.seen[0].packet.Destination != s.packet.Source:
			return fmt.Sprintf("the answer should have gone to %s", s.packet.Source)
		case answer == "reset" && s.seen[0].packet.Source != s.packet.Destination:
			return fmt.Sprintf("the reset should have come from %s", s.packet.Destination)
		}
	}
	return ""
}

// crowd finds the packets of different flows that rewriting would make one.
func crowd(shots []*shot) {
	type ends struct {
		protocol         uint8
		source, target   netip.Addr
		sourcePort, port uint16
	}
	of := func(p *packet.Packet) ends {
		return ends{p.Protocol, p.Source, p.Destination, p.SourcePort, p.Port}
	}
	flows := map[ends]map[ends]bool{} // behind the rewriting: before it
	rewritten := func(s *shot) bool { return s.packet.HasPorts() && s.want.Packet.Source != s.packet.Source }
	for _, s := range shots {
		if s.want.Verdict == policy.Allow && s.packet.HasPorts() {
			left := of(&s.want.Packet)
			if flows[left] == nil {
				flows[left] = map[ends]bool{}
			}
			flows[left][of(&s.packet)] = true
		}
	}
	for _, s := range shots {
		s.crowded = rewritten(s) && len(flows[of(&s.want.Packet)]) > 1
	}
}

// leftAs is how a packet left, without the port that the kernel chose where the
// packet's own was taken: one of the same kind (nf_nat_l4proto_unique_tuple of
// net/netfilter/nf_nat_core.c: below 512, below 1,024, or above).
func (s *shot) leftAs(p packet.Packet) packet.Packet {
	kind := func(port uint16) int {
		switch {
		case port < 512:
			return 0
		case port < 1024:
			return 1
		}
		return 2
	}
	if s.crowded && p.Source == s.want.Packet.Source && kind(p.SourcePort) == kind(s.want.Packet.SourcePort) {
		p.SourcePort = s.want.Packet.SourcePort
	}
	return p
}

// sameHeader compares what can be rewritten.
func sameHeader(a, b packet.Packet) bool {
	return a.Source == b.Source && a.Destination == b.Destination && a.SourcePort == b.SourcePort && a.Port == b.Port &&
		a.Protocol == b.Protocol && a.ICMPType == b.ICMPType && a.ICMPID == b.ICMPID && a.Flags == b.Flags
}

// answer is what the kernel answers a packet that is rejected, "" where it gives
// none; not sure: it may fail to, for reasons of routing.
func (s *shot) answer() (text string, sure bool) {
	p := &s.packet
	// From another address than where it can be sent back to: of link scope, whose
	// interface a reset does not know.
	sure = !p.Source.IsLinkLocalUnicast()
	// Of other protocols the kernel looks for a sum over the whole packet, and the
	// addresses of IPv6 are part of it: after rewriting it is wrong.
	if !p.HasPorts() && p.Protocol != packet.ICMPv6 && p.Source.Is6() && s.want.Packet.Destination != p.Destination {
		sure = false
	}
	// Where it knows nothing of DCCP and of what is behind AH, it looks for the same.
	sure = sure && p.Protocol != dccp && (p.Protocol != authentication || !p.Source.Is6())
	// A stateless map whose inner prefix has an address of the host leads to the
	// host, but nothing that the host says there is led back: not even a reset.
	if s.want.Hook == policy.Input && s.want.Packet.State == packet.Untracked && s.want.Packet.Destination != p.Destination {
		sure = false
	}
	// The error that answers a packet without a connection is about none, and output
	// decides it as any other.
	if state := s.want.Packet.State; p.Protocol != packet.TCP && (state == packet.Invalid || state == packet.Untracked) {
		sure = false
	}
	switch p.Protocol {
	case packet.TCP:
		if p.Flags&packet.RST != 0 {
			return "", true
		}
		return "reset", sure
	case packet.ICMP:
		// icmp_send answers no errors (icmp_pointers in net/ipv4/icmp.c).
		if !slices.Contains([]uint8{0, 8, 13, 14, 15, 16, 17, 18}, p.ICMPType) {
			return "", true
		}
	case packet.ICMPv6:
		if p.ICMPType < 128 {
			return "", true
		}
	}
	if p.Source.Is6() {
		return "unreachable, code 4", sure
	}
	return "unreachable, code 3", sure
}

// report is a difference for a reader.
func report(s *shot, difference string) string {
	want := fmt.Sprintf("%s at %s by %s", s.want.Verdict, s.want.Hook, s.want.Stage)
	if s.want.Text != "" {
		want += fmt.Sprintf(" (%s)", s.want.Text)
	}
	got := "nothing"
	if len(s.seen) > 0 {
		got = fmt.Sprint(s.seen)
	}
	return fmt.Sprintf("%s\n  the reference says %s, %s: %s\n  the kernel: %s", s, want, s.want.Packet.State, difference, got)
}
