package reference

import (
	"math/bits"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// locate says whose the packet's addresses are and by which interface it
// leaves, as far as the caller has not.
func (w *walk) locate() {
	p := &w.packet
	if p.SourceLocal == packet.Unknown {
		p.SourceLocal = w.own(p.Source)
	}
	if p.SourceLocal == packet.Unknown {
		p.SourceLocal = packet.Is(w.way == packet.Out)
	}
	if p.DestinationLocal == packet.Unknown {
		p.DestinationLocal = w.own(p.Destination)
	}
	if p.DestinationLocal == packet.Unknown {
		p.DestinationLocal = packet.Is(w.way == packet.In || w.way == packet.Out && p.Out == loopback)
	}
	if w.way != packet.Out {
		return
	}
	w.at, w.hook = "output", policy.Output
	if p.Out == "" {
		w.leaveBy()
	} else if !w.leads() {
		w.lost()
	}
}

// own says whether an address is one of the host's.
func (w *walk) own(a netip.Addr) packet.Answer {
	switch {
	case a.IsLoopback():
		return packet.Yes
	case a.IsMulticast() || a == broadcast:
		return packet.No
	case !w.Facts.Known:
		return packet.Unknown
	}
	return packet.Is(Own(w.Facts, a))
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

const loopback = "lo"

// Own says whether an address is one of a host's, as its facts have it.
func Own(f host.Facts, a netip.Addr) bool {
	local := func(p netip.Prefix) bool { return p.Contains(a) }
	return a.IsLoopback() || slices.ContainsFunc(f.Local, local) ||
		slices.ContainsFunc(f.Interfaces, func(i host.Interface) bool { return has(i, a) })
}

func has(i host.Interface, a netip.Addr) bool {
	return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// InterfaceTo is the interface that a packet of no known source or service to an
// address leaves by: loopback to the host itself; "" is not known.
func InterfaceTo(f host.Facts, a netip.Addr) string {
	if Own(f, a) {
		return loopback
	}
	if w := f.Route(host.Trip{Destination: a, User: -1}); w.Leads == host.Onward && len(w.Out) == 1 {
		return w.Out[0]
	}
	return ""
}

func (w *walk) interfaceTo(a netip.Addr) string { return InterfaceTo(w.Facts, a) }

// addressOf is the address that masquerade gives a packet that leaves by an
// interface for an address: the first, in the kernel's order, of IPv4 in the
// network of the destination or of the router on the way to it
// (inet_select_addr), of IPv6 with the longest beginning in common with the
// destination (RFC 6724 section 5, rule 8). It is not valid where none is known.
func (w *walk) addressOf(name string, to netip.Addr) (best netip.Addr) {
	if name == loopback {
		return w.addressOfLoopback(to)
	}
	most := -1
	for _, p := range w.addressesOn(name, to) {
		a := p.Addr()
		common := min(p.Bits(), commonBits(a, to))
		if a.Is4() && common < p.Bits() {
			common = 0
			if slices.ContainsFunc(w.Facts.Gateways, p.Masked().Contains) {
				common = 1
			}
		}
		if common > most {
			best, most = a, common
		}
	}
	return best
}

// addressOfLoopback is addressOf where the host asks itself. Those of loopback are of
// too small a scope: of IPv4 it is the first address of the first other interface
// (inet_select_addr), of IPv6 the destination (RFC 6724 section 5, rule 1).
func (w *walk) addressOfLoopback(to netip.Addr) (first netip.Addr) {
	if to.Is6() {
		return to
	}
	index := 0
	for _, i := range w.Facts.Interfaces {
		list := w.addressesOn(i.Name, to)
		if i.Name != loopback && len(list) > 0 && (index == 0 || i.Index < index) {
			first, index = list[0].Addr(), i.Index
		}
	}
	return first
}

// addressesOn is the addresses of an interface, of the family of another address
// and of its kind: those of the link alone, or the others.
func (w *walk) addressesOn(name string, like netip.Addr) (out []netip.Prefix) {
	for _, i := range w.Facts.Interfaces {
		if i.Name != name {
			continue
		}
		for _, p := range i.InOrder() {
			if p.Addr().Is4() == like.Is4() && p.Addr().IsLinkLocalUnicast() == like.IsLinkLocalUnicast() {
				out = append(out, p)
			}
		}
	}
	return out
}

// commonBits is how long a beginning two addresses of one family share.
func commonBits(a, b netip.Addr) int {
	x, y := a.AsSlice(), b.AsSlice()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return 8*i + bits.LeadingZeros8(d)
		}
	}
	return 8 * len(x)
}

// route says where the packet goes after its destination is settled.
func (w *walk) route() {
	p := &w.packet
	if w.router != nil && !p.Destination.IsMulticast() && p.Destination != broadcast {
		w.routeAsked()
		return
	}
	switch {
	case w.moved && w.way == packet.Through && p.DestinationLocal == packet.Yes:
		w.way, p.Out = packet.In, ""
		w.step("routing", noPos, "", "it is an address of this host, so the packet is for this host")
	case w.moved && w.way == packet.In && p.DestinationLocal == packet.No:
		w.way = packet.Through
	}
	if w.way != packet.Through {
		return
	}
	if p.Out == "" {
		p.Out = w.interfaceTo(p.Destination)
	}
	w.step("routing", noPos, "", "it is not an address of this host, so the packet is forwarded"+by(p.Out))
}

func by(name string) string {
	if name == "" {
		return ""
	}
	return ", out by " + name
}

// zoneHas says whether an address is one of the host's on a zone's interfaces.
func (w *walk) zoneHas(zone *resolve.Zone, a netip.Addr) bool {
	return slices.ContainsFunc(w.Facts.Interfaces, func(i host.Interface) bool { return zone.HasInterface(i.Name) && has(i, a) })
}
