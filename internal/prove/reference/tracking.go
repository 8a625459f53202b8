package reference

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

var noPos policy.Pos

// track says what connection tracking makes of the packet: nothing where the
// policy keeps it out, else what a packet of no known flow is, unless a flow or
// the caller says otherwise.
func (w *walk) track() {
	p := &w.packet
	switch {
	case p.State != "":
		w.step("tracking", noPos, "", "the packet is "+string(p.State)+", as given")
	case w.betweenLoopbacks():
		p.State = packet.Untracked
		w.step("tracking", noPos, "", "loopback traffic is not tracked")
	case w.bypassed(), w.mappedWithoutState():
		p.State = packet.Untracked
	case w.table != nil:
		w.table.track(w)
	default:
		var why string
		p.State, why = Begins(*p)
		w.step("tracking", noPos, "", why)
	}
	w.begins = p.Begins() && w.flow == nil && p.In != loopback // what comes by loopback has begun at output
}

// Untracks says whether the policy keeps a packet out of connection tracking.
func Untracks(r *resolve.Resolved, p packet.Packet, way packet.Way) bool {
	w := newWalk(r, p, way)
	w.quiet = true
	return w.betweenLoopbacks() || w.bypassed() || w.mappedWithoutState()
}

// betweenLoopbacks: what goes from 127/8 to 127/8 or from ::1 to itself over
// the loopback interface keeps no state, unless another tool rewrites the
// host's own packets.
func (w *walk) betweenLoopbacks() bool {
	p := &w.packet
	return (p.In == loopback || p.Out == loopback) && p.Source.IsLoopback() && p.Destination.IsLoopback() && !w.Facts.ForeignOutputNAT
}

// bypassed says whether the packet is one of a bypassed service: the local end
// is the service's port at an address of this host.
func (w *walk) bypassed() bool {
	for i := range w.Policy.Tracking.Bypass {
		b := &w.Policy.Tracking.Bypass[i]
		to := w.packet.DestinationLocal == packet.Yes && w.offers(b, w.packet.Destination, w.packet.Port)
		from := w.way == packet.Out && w.packet.SourceLocal == packet.Yes && w.offers(b, w.packet.Source, w.packet.SourcePort)
		if to || from {
			w.step("tracking", b.Pos, bypassText(b), "the packet belongs to a service that bypasses tracking")
			return true
		}
	}
	return false
}

// offers says whether an address and port of this host are what a bypass is
// about.
func (w *walk) offers(b *policy.Bypass, local netip.Addr, port uint16) bool {
	at := w.packet
	at.Port = port
	if !serviceIn(b.Services, at) {
		return false
	}
	if b.To == nil {
		return true
	}
	return slices.ContainsFunc(b.To.Items, func(item policy.WhoItem) bool {
		if set := w.Sets[item.Name]; set != nil && set.IsEndpoints() {
			return slices.ContainsFunc(set.Endpoints, func(e policy.Endpoint) bool {
				return e.Protocol == w.packet.Protocol && e.Port == port && e.Address.Contains(local)
			})
		}
		_, found := w.inItem(item, local)
		return found
	})
}

// serves says whether an address of this host is one that a bypass is about.
func (w *walk) serves(b *policy.Bypass, local netip.Addr) bool {
	return b.To == nil || slices.ContainsFunc(b.To.Items, func(item policy.WhoItem) bool {
		if set := w.Sets[item.Name]; set != nil && set.IsEndpoints() {
			return slices.ContainsFunc(set.Endpoints, func(e policy.Endpoint) bool { return e.Address.Contains(local) })
		}
		_, found := w.inItem(item, local)
		return found
	})
}

func bypassText(b *policy.Bypass) string {
	text := "bypass:"
	for i, s := range b.Services {
		if i > 0 {
			text += ","
		}
		text += " " + s.Text
	}
	return text
}

// mappedWithoutState says whether the packet is one that a stateless map is
// about: to the outer prefix, or from the inner one. What goes between the
// machines of the inner prefix and this host is not.
func (w *walk) mappedWithoutState() bool {
	p := &w.packet
	for _, n := range w.Policy.NAT {
		if !n.Stateless {
			continue
		}
		to := w.way != packet.Out && n.Outside.Range.Contains(p.Destination)
		from := n.Inside.Range.Contains(p.Source) && p.DestinationLocal != packet.Yes
		if w.way == packet.Out { // a reset that reject sends in another's name, which belongs to no connection
			from = p.SourceLocal != packet.Yes && (n.Inside.Range.Contains(p.Source) || n.Inside.Range.Contains(p.Destination))
		}
		if to || from {
			w.step("tracking", n.Pos, n.Text, "a stateless map is not tracked")
			return true
		}
	}
	return false
}

// Begins says what connection tracking makes of a packet of no known flow, and
// why, as the kernel's trackers do: a packet that cannot begin a flow is
// invalid. TCP begins with a SYN or, since the kernel picks up connections that
// it has not seen begin (net.netfilter.nf_conntrack_tcp_loose), with an ACK; ICMP
// with a question; neighbour discovery and multicast listeners are left out.
func Begins(p packet.Packet) (packet.State, string) {
	switch p.Protocol {
	case packet.TCP:
		switch kind := kindOf(p.Flags); kind {
		case isSYN:
			return packet.New, "it belongs to no known connection: the packet is new"
		case isACK:
			return packet.New, "it belongs to no known connection, and tracking picks it up midway: the packet is new"
		case isNothing:
			return packet.Invalid, "its TCP flags make no sense: the packet is invalid"
		default:
			return packet.Invalid, fmt.Sprintf("a TCP %s begins no connection and belongs to no known one: the packet is invalid", kind)
		}
	case packet.ICMP:
		switch {
		case slices.Contains(questions4, p.ICMPType):
		case slices.Contains(carriers4, p.ICMPType):
			return packet.Invalid, "it is an ICMP error about no known connection: the packet is invalid"
		default:
			return packet.Invalid, "this ICMP message is not a request, and no request for it is known: the packet is invalid"
		}
	case packet.ICMPv6:
		switch {
		case slices.Contains(neverTracked6, p.ICMPType):
			return packet.Untracked, "the kernel does not track neighbour discovery and multicast listeners"
		case slices.Contains(questions6, p.ICMPType):
		case p.ICMPType < 128:
			return packet.Invalid, "it is an ICMPv6 error about no known connection: the packet is invalid"
		default:
			return packet.Invalid, "this ICMPv6 message is not a request, and no request for it is known: the packet is invalid"
		}
	}
	return packet.New, "it belongs to no known connection: the packet is new"
}
