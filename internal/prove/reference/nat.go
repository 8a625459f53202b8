package reference

import (
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// mapInward puts the destination of a stateless map in the inner prefix, in the
// header alone.
func (w *walk) mapInward() {
	p := &w.packet
	for _, n := range w.Policy.NAT {
		if !n.Stateless || !n.Outside.Range.Contains(p.Destination) {
			continue
		}
		p.Original = p.Arrived()
		p.Destination = mapped(p.Destination, n.Outside.Range, n.Inside.Range)
		w.settle()
		w.step("nat", n.Pos, n.Text, w.because("the destination becomes %s, without state", p.Destination))
		return
	}
}

// rewriteDestination asks the lines of nat that lead connections elsewhere, of
// the packet that begins one; the first that fits holds. Later packets of a
// connection go where it was led.
func (w *walk) rewriteDestination() {
	if w.flow != nil {
		w.flow.rewriteDestination(w)
		return
	}
	if !w.begins || w.packet.DNAT {
		return
	}
	for _, n := range w.Policy.NAT {
		switch {
		case n.Kind == policy.Redirect && w.redirects(n):
			to := n.Target.Address.From
			if !to.IsValid() {
				to = w.here()
			}
			w.lead(n, to, n.Target.Port)
			return
		case n.Kind == policy.Map && !n.Stateless && n.Outside.Range.Contains(w.packet.Destination):
			w.lead(n, mapped(w.packet.Destination, n.Outside.Range, n.Inside.Range), 0)
			return
		}
	}
	w.publishedElsewhere()
}

// lead gives the packet another destination. What goes there already does not count
// as rewritten, and is not published (nf_nat_setup_info of net/netfilter/nf_nat_core.c
// compares the two).
func (w *walk) lead(n *policy.NAT, to netip.Addr, port uint16) {
	p := &w.packet
	if to == p.Destination && (port == 0 || port == p.Port) {
		w.step("nat", n.Pos, n.Text, "the packet already goes there, so nothing is rewritten")
		return
	}
	p.Original = p.Arrived()
	p.Destination, p.DNAT = to, true
	if port != 0 {
		p.Port = port
	}
	w.settle()
	if n.Kind == policy.Redirect && !n.Target.Address.IsValid() {
		p.DestinationLocal = packet.Yes
	}
	w.step("nat", n.Pos, n.Text, w.because("the destination becomes %s", endText(to, p.Port, *p)))
}

// settle says whose the new destination is.
func (w *walk) settle() {
	p := &w.packet
	w.moved = true
	if p.DestinationLocal = w.own(p.Destination); p.DestinationLocal == packet.Unknown {
		p.DestinationLocal = packet.No
	}
}

// redirects says whether a redirect is about the packet: its service, at the
// addresses that the line names, or at the host's own on the zone's interfaces,
// from whichever side the packet comes.
func (w *walk) redirects(n *policy.NAT) bool {
	p := &w.packet
	to := n.Target.Address.From
	if n.Family != 0 && n.Family != p.Family() || to.IsValid() && to.Is4() != p.Destination.Is4() || !serviceIn([]policy.ServiceRef{*n.Service}, *p) {
		return false
	}
	if len(n.On) > 0 {
		return slices.ContainsFunc(n.On, func(r policy.Range) bool { return r.Range.Contains(p.Destination) })
	}
	own := p.Own.In(n.In.Text)
	if w.way != packet.Out && w.through(n.In.Text, p.In, p.InRoute) && p.DestinationLocal == packet.Yes {
		i := slices.IndexFunc(w.Facts.Interfaces, func(i host.Interface) bool { return i.Name == p.In })
		if i < 0 && own != packet.No || i >= 0 && has(w.Facts.Interfaces[i], p.Destination) {
			return true // by an interface that the facts do not know, any address of the host
		}
	}
	if own != packet.Unknown {
		return own == packet.Yes
	}
	return !p.Destination.IsLinkLocalUnicast() && w.zoneHas(w.Zones[n.In.Text], p.Destination)
}

// here is where the kernel leads what is redirected to the host itself: to
// loopback what the host sends, else to the interface's first address
// (nf_nat_redirect.c).
func (w *walk) here() netip.Addr {
	p := &w.packet
	if w.way == packet.Out {
		if p.Destination.Is4() {
			return netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		return netip.IPv6Loopback()
	}
	if list := w.addressesOn(p.In, p.Destination); len(list) > 0 {
		return list[0].Addr()
	}
	return p.Destination
}

// publishedElsewhere: a port that another tool publishes by a rule of its own,
// as the host's facts have it.
func (w *walk) publishedElsewhere() {
	p := &w.packet
	if w.way != packet.In || p.DestinationLocal != packet.Yes {
		return
	}
	for _, f := range w.Facts.Published {
		to := f.To.Addr()
		protocol, _ := packet.PortProtocol(f.Protocol)
		switch {
		case f.Protocol != "" && protocol != p.Protocol,
			f.Address.IsValid() && f.Address != p.Destination,
			f.Port != 0 && f.Port != p.Port,
			!to.IsValid(), to.Is4() != p.Destination.Is4(),
			f.Port == 0 && !f.Address.IsValid():
			continue
		}
		p.Original = p.Arrived()
		p.Destination, p.DNAT, w.foreign = to, true, true
		if f.To.Port() != 0 {
			p.Port = f.To.Port()
		}
		w.settle()
		w.step("nat", noPos, "", "another tool publishes this port: "+f.String())
		return
	}
}

// rewriteSource asks the lines of nat about what leaves, of the packet that
// begins a connection; the first that fits holds. A stateless map rewrites
// every packet.
func (w *walk) rewriteSource() {
	p := &w.packet
	if w.flow != nil {
		w.flow.rewriteSource(w)
		return
	}
	for _, n := range w.Policy.NAT {
		if n.Stateless && p.State == packet.Untracked && n.Inside.Range.Contains(p.Source) && p.SourceLocal != packet.Yes {
			p.Original = p.Arrived()
			p.Source = mapped(p.Source, n.Inside.Range, n.Outside.Range)
			w.step("nat", n.Pos, n.Text, w.because("the source becomes %s, without state", p.Source))
			return
		}
	}
	if !w.begins {
		return
	}
	for _, n := range w.Policy.NAT {
		var to netip.Addr
		switch {
		case n.Kind == policy.Masquerade && w.masquerades(n):
			if to = w.addressOf(p.Out, p.Destination); n.As != nil {
				to = n.As.Range.From
			}
		case n.Kind == policy.Redirect && w.hairpins(n):
			to = w.addressOf(p.Out, p.Destination)
		case n.Kind == policy.Map && !n.Stateless && n.Inside.Range.Contains(p.Source) && p.SourceLocal != packet.Yes:
			to = mapped(p.Source, n.Inside.Range, n.Outside.Range)
		default:
			continue
		}
		p.Original = p.Arrived()
		p.SNAT = true
		if n.Kind != policy.Map && w.bypasses(p.Protocol, p.SourcePort) {
			p.SourcePort, w.crowded = 0, true
			w.step("nat", n.Pos, n.Text, "the source port changes: replies to the old one would bypass tracking and stay on this host")
		}
		if !to.IsValid() {
			w.step("nat", n.Pos, n.Text, "the source becomes the address of the outgoing interface, which is not known")
			return
		}
		p.Source = to
		w.step("nat", n.Pos, n.Text, w.because("the source becomes %s", to))
		return
	}
}

// bypasses says whether a port bypasses tracking, at whatever address.
func (w *walk) bypasses(protocol uint8, port uint16) bool {
	at := packet.Packet{Protocol: protocol, Port: port, Source: w.packet.Source, Destination: w.packet.Destination}
	return at.HasPorts() && slices.ContainsFunc(w.Policy.Tracking.Bypass, func(b policy.Bypass) bool { return serviceIn(b.Services, at) })
}

func (w *walk) masquerades(n *policy.NAT) bool {
	p := &w.packet
	return (n.Family == 0 || n.Family == p.Family()) && (n.As == nil || n.As.Range.From.Is4() == p.Source.Is4()) &&
		w.through(n.Out.Text, p.Out, p.OutRoute) && w.who(n.From, p.Source, p.In, p.InRoute)
}

// hairpins says that a redirect has led the packet to a machine beside the one
// that asks. It would answer past the host, so the host puts itself between.
func (w *walk) hairpins(n *policy.NAT) bool {
	p := &w.packet
	to := n.Target.Address.From
	if !p.DNAT || !to.IsValid() || p.Destination != to {
		return false
	}
	asked := *p
	if n.Target.Port != 0 {
		if p.Port != n.Target.Port {
			return false
		}
		asked.Port = p.Original.Port
	}
	return serviceIn([]policy.ServiceRef{*n.Service}, asked) && w.beside(to, p.Source)
}

// beside says whether two addresses are in one network of a zone or an
// interface.
func (w *walk) beside(a, b netip.Addr) bool {
	for _, zone := range w.Zones {
		for r := range zone.Networks.Each() {
			if r.Contains(a) && r.Contains(b) {
				return true
			}
		}
	}
	return slices.ContainsFunc(w.Facts.Interfaces, func(i host.Interface) bool {
		return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Masked().Contains(a) && p.Masked().Contains(b) })
	})
}

// mapped gives the address of one prefix that has the place in it that a has in
// another of the same length.
func mapped(a netip.Addr, from, to addrset.Range) netip.Addr {
	out, place, base := to.From.AsSlice(), a.AsSlice(), from.From.AsSlice()
	for i := range out {
		out[i] |= place[i] ^ base[i] // the host bits; those of to are zero
	}
	moved, _ := netip.AddrFromSlice(out)
	return moved
}

func endText(a netip.Addr, port uint16, p packet.Packet) string {
	if !p.HasPorts() {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}
