package reference

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// OverBan says for which ends of a packet bans do not hold, where it is checked for bans: by
// exceptions by command, or since it is neighbour discovery.
type OverBan struct{ Source, Destination bool }

// overBan is an exception over bans by which the packet goes as far as one of its ends is
// concerned; nil where none is.
func (w *walk) overBan(source bool) *policy.Rule {
	end := w.packet.Destination
	if source {
		end = w.packet.Source
	}
	for _, r := range w.Policy.OverBans() {
		switch {
		case !r.From.Items[0].Literal.Contains(end):
		case !r.Until.IsZero() && w.packet.Moment() >= r.Until.Unix():
		case w.isError(), source && w.about(r, w.packet), !source && w.answered(r):
			return r
		}
	}
	return nil
}

// isError says that a packet is an error of ICMP.
func (w *walk) isError() bool {
	p := w.packet
	return p.Protocol == packet.ICMP && slices.Contains(errors4, p.ICMPType) || p.Protocol == packet.ICMPv6 && slices.Contains(errors6, p.ICMPType)
}

// about is fits, which leaves no word of what was asked.
func (w *walk) about(r *policy.Rule, p packet.Packet) bool {
	asked := w.asked
	defer func() { w.asked = asked }()
	_, ok := w.fits(r, p)
	return ok
}

// answered says whether a packet answers what a rule is about: of a flow by its direction,
// where ICMP answers by other types than it asks by; without a state by the ports.
func (w *walk) answered(r *policy.Rule) bool {
	asked := w.packet.Mirror()
	icmp := asked.Protocol == packet.ICMP || asked.Protocol == packet.ICMPv6
	switch {
	case w.packet.State == packet.Untracked:
		return !r.Published && !opens(w.packet) && portsIn(r.Services, asked) && w.about(r, asked)
	case !w.packet.Reply:
		return false
	case icmp && !r.Published:
		return len(r.Services) == 0 || anyMatch(r.Services, func(m policy.ServiceMatch) bool { return ofICMP(m, asked.Protocol) })
	}
	return w.about(r, asked)
}

// ofICMP says whether a service is of ICMP in the family of a packet of it.
func ofICMP(m policy.ServiceMatch, protocol uint8) bool {
	switch {
	case m.Any:
		return true
	case m.ICMP != nil:
		return protocol == packet.ICMP && m.ICMP.V4 >= 0 || protocol == packet.ICMPv6 && m.ICMP.V6 >= 0
	}
	return m.Protocol == packet.ICMP || m.Protocol == protocol
}
