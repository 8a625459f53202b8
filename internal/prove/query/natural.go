package query

import (
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// Natural gives a packet of a region, the nearest to a witness of it that the host
// is likely to see: by the interface of its default route or the one that has the
// network, to and from addresses of that interface, with a far end that is none of
// the host's own and of no network on another side.
func Natural(u *reach.Universe, within reach.Region, witness packet.Packet, way reach.Way, facts host.Facts) packet.Packet {
	n := &natural{u: u, within: within, p: witness, facts: facts, devices: devices(facts)}
	switch way {
	case reach.Out:
		n.out()
		n.sender()
		n.far(destination, n.p.Out)
	case reach.In:
		n.in()
		n.far(source, n.p.In)
	default:
		n.in()
		if n.p.DestinationLocal != packet.Yes && !n.p.DNAT {
			n.far(destination, "")
		}
		n.far(source, n.p.In)
		n.out()
	}
	return n.p
}

type natural struct {
	u       *reach.Universe
	within  reach.Region
	p       packet.Packet
	facts   host.Facts
	devices []host.Interface
}

// devices are the host's interfaces but loopback, those of the default route
// first.
func devices(f host.Facts) []host.Interface {
	out := slices.DeleteFunc(slices.Clone(f.Interfaces), func(i host.Interface) bool { return i.Name == "lo" })
	last := func(i host.Interface) int {
		if slices.Contains(f.DefaultRoute, i.Name) {
			return 0
		}
		return 1
	}
	sorting.StableBy(out, func(a, b host.Interface) int { return last(a) - last(b) })
	return out
}

// try changes the packet where it stays in the region; true where it is as wanted.
func (n *natural) try(change func(*packet.Packet)) bool {
	q := n.p
	change(&q)
	if q.In != n.p.In {
		q.InRoute = packet.Unknown
	}
	if q.Out != n.p.Out {
		q.OutRoute = packet.Unknown
	}
	if q.Destination != n.p.Destination {
		q.Own = ""
	}
	if q == n.p {
		return true
	}
	if !n.u.Holds(n.within, q) {
		return false
	}
	n.p = q
	return true
}

func source(p *packet.Packet) *netip.Addr      { return &p.Source }
func destination(p *packet.Packet) *netip.Addr { return &p.Destination }

// addressed is the address that the outside asks: of what was led on, that before it.
func addressed(p *packet.Packet) *netip.Addr {
	if p.DNAT {
		return &p.Original.Destination
	}
	return &p.Destination
}

// in has the packet come by the interface that has its source, else by the one of
// the default route, to an address of that where it is for the host.
func (n *natural) in() {
	by := n.devices
	if i := n.of(n.p.Source); i >= 0 {
		by = slices.Concat(by[i:i+1], by)
	}
	mine := n.p.DestinationLocal == packet.Yes || n.p.DNAT
	for _, d := range by {
		set := func(q *packet.Packet) { q.In = d.Name }
		if mine && n.address(d, addressed, set) || n.try(set) {
			break
		}
	}
	if !mine {
		return
	}
	here := slices.IndexFunc(by, func(d host.Interface) bool { return d.Name == n.p.In })
	if here >= 0 {
		by = slices.Concat(by[here:here+1], by)
	}
	for _, d := range by {
		if n.address(d, addressed, func(*packet.Packet) {}) {
			break
		}
	}
}

// address tries the addresses of an interface for one end.
func (n *natural) address(d host.Interface, end func(*packet.Packet) *netip.Addr, also func(*packet.Packet)) bool {
	for _, a := range d.InOrder() {
		if a.Addr().Is4() == n.p.Source.Is4() && n.try(func(q *packet.Packet) { *end(q) = a.Addr(); also(q) }) {
			return true
		}
	}
	return false
}

// sender gives what the host sends its address on the interface.
func (n *natural) sender() {
	for _, d := range n.devices {
		if d.Name == n.p.Out && (n.address(d, source, func(*packet.Packet) {}) ||
			n.address(d, source, func(q *packet.Packet) { q.SourceLocal = packet.Yes })) {
			return
		}
	}
}

// out has the packet leave by the interface that has the network, else by the one
// of the default route.
func (n *natural) out() {
	by := n.devices
	if i := n.of(n.p.Destination); i >= 0 && !n.own(n.p.Destination) {
		by = slices.Concat(by[i:i+1], by)
	}
	for _, d := range by {
		if d.Name != n.p.In && n.try(func(q *packet.Packet) { q.Out = d.Name }) {
			return
		}
	}
}

// far gives an end of another host an example, where its address is odd, the
// host's own, that of the other end, or in a network of another interface.
func (n *natural) far(end func(*packet.Packet) *netip.Addr, device string) {
	other := func(p *packet.Packet) netip.Addr {
		if end(p) == &p.Source {
			return p.Destination
		}
		return p.Source
	}
	strange := func(p packet.Packet) bool {
		a := *end(&p)
		i := n.of(a)
		return odd(a) || n.own(a) || n.whole(a) || a == other(&p) || device != "" && i >= 0 && n.devices[i].Name != device
	}
	if !strange(n.p) {
		return
	}
	for _, a := range slices.Concat(n.beside(device), n.neighbours(n.of(*end(&n.p))), examples) {
		q := n.p
		*end(&q) = a
		if a.Is4() == n.p.Source.Is4() && !strange(q) && n.try(func(p *packet.Packet) { *end(p) = a }) {
			return
		}
	}
}

// beside is neighbours of the host on an interface; none on that of the default
// route, by which the rest of the world comes.
func (n *natural) beside(device string) (out []netip.Addr) {
	if slices.Contains(n.facts.DefaultRoute, device) {
		return nil
	}
	return n.neighbours(slices.IndexFunc(n.devices, func(d host.Interface) bool { return d.Name == device }))
}

func (n *natural) neighbours(i int) (out []netip.Addr) {
	if i < 0 {
		return nil
	}
	for _, p := range n.devices[i].InOrder() {
		if next := p.Addr().Next(); p.Contains(next) && !next.IsLinkLocalUnicast() {
			out = append(out, next)
		}
	}
	return out
}

// of is the interface in whose network an address is; -1 for none.
func (n *natural) of(a netip.Addr) int {
	return slices.IndexFunc(n.devices, func(d host.Interface) bool {
		return slices.ContainsFunc(d.Addresses, func(p netip.Prefix) bool { return p.Masked().Contains(a) })
	})
}

// whole says whether an address stands for a whole network of the host.
func (n *natural) whole(a netip.Addr) bool {
	return slices.ContainsFunc(n.devices, func(d host.Interface) bool {
		return slices.ContainsFunc(d.Addresses, func(p netip.Prefix) bool { return p.Masked().Addr() == a && p.Addr() != a })
	})
}

func (n *natural) own(a netip.Addr) bool {
	return slices.ContainsFunc(n.devices, func(d host.Interface) bool {
		return slices.ContainsFunc(d.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}
