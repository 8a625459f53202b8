package reference

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// ICMP types, from the registries of RFC 792 and RFC 4443.
var (
	errors4    = []uint8{3, 11, 12}       // destination unreachable, time exceeded, parameter problem
	carriers4  = []uint8{3, 4, 5, 11, 12} // with source quench and redirect: what carries a packet inside
	questions4 = []uint8{8, 13, 15, 17}   // echo, timestamp, information, address mask
	replies4   = []uint8{0, 14, 16, 18}

	errors6    = []uint8{1, 2, 3, 4} // destination unreachable, packet too big, time exceeded, parameter problem
	questions6 = []uint8{128, 139}   // echo, node information
	replies6   = []uint8{129, 140}

	// Neighbour discovery with its inverse and its secured form (RFC 4861, RFC
	// 3122, RFC 3971), and multicast listener discovery (RFC 2710, RFC 3810).
	neighbours6 = []uint8{133, 134, 135, 136, 141, 142, 148, 149}
	listeners6  = []uint8{130, 131, 132, 143}
	// What the kernel's tracker leaves alone (nf_conntrack_proto_icmpv6.c).
	neverTracked6 = []uint8{130, 131, 132, 133, 134, 135, 136, 143}
)

// neighbourly says that the packet is neighbour discovery, from the same link:
// nobody forwards it, so its hop limit is as it was sent. What the host forwards
// has lost one hop before the hook of forward sees it (ip6_forward).
func (w *walk) neighbourly() bool {
	p := &w.packet
	return w.hook != policy.Forward && p.Protocol == packet.ICMPv6 && p.HopLimit == 255 && slices.Contains(neighbours6, p.ICMPType)
}

// isNeeded says whether IP does not work without the packet, and as what.
func (w *walk) isNeeded() string {
	p := &w.packet
	switch p.Protocol {
	case packet.ICMP:
		if slices.Contains(errors4, p.ICMPType) {
			return w.errorsPass()
		}
	case packet.ICMPv6:
		switch {
		case slices.Contains(errors6, p.ICMPType):
			return w.errorsPass()
		case w.hook == policy.Forward:
		case w.neighbourly():
			return "neighbour discovery"
		case slices.Contains(listeners6, p.ICMPType) && (p.Source.IsLinkLocalUnicast() || p.Source.IsUnspecified()):
			return "multicast listener discovery"
		}
	}
	return ""
}

// errorsPass says why an ICMP error passes that belongs to no known flow: the policy
// lets all pass, or it is about what keeps no state. "" leaves it to the state.
func (w *walk) errorsPass() string {
	t := &w.Policy.Tracking
	if t.ErrorsAll {
		return "ICMP errors"
	}
	if w.packet.State != packet.Invalid && w.packet.State != packet.Untracked {
		return ""
	}
	const mapped, bypassed = "ICMP errors about packets that are mapped without state", "ICMP errors about packets that bypass tracking"
	if w.mapsWithoutState() && (w.packet.State == packet.Untracked || w.hook == policy.Output) {
		return mapped
	}
	for i := range t.Bypass {
		if w.hook == policy.Output || w.hook == policy.Input && w.serves(&t.Bypass[i], w.packet.Destination) {
			return bypassed
		}
	}
	return ""
}

// Requests says that a packet is a request of ICMP. Each is decided by itself: it goes to
// the rules whatever its state.
func Requests(p packet.Packet) bool {
	switch p.Protocol {
	case packet.ICMP:
		return slices.Contains(questions4, p.ICMPType)
	case packet.ICMPv6:
		return slices.Contains(questions6, p.ICMPType)
	}
	return false
}
