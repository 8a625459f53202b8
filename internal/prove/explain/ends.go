package explain

import (
	"fmt"
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

func (a asked) addresses(p *packet.Packet) error {
	for _, end := range []struct {
		field Field
		text  string
		to    *netip.Addr
	}{{Source, a.Source, &p.Source}, {Destination, a.Destination, &p.Destination}} {
		if end.text == "" {
			continue
		}
		name := a.Words.Name(end.field)
		address, err := netip.ParseAddr(end.text)
		switch {
		case err != nil:
			return wrong("", "%s %q is not an IP address", name, end.text)
		case address.Zone() != "":
			return wrong(fmt.Sprintf("%s and %s name interfaces", a.Words.Name(In), a.Words.Name(Out)),
				"%s %s: write the address without %%%s", name, end.text, address.Zone())
		}
		*end.to = address.Unmap()
	}
	if p.Source.IsValid() && p.Destination.IsValid() && p.Source.Is4() != p.Destination.Is4() {
		return wrong("", "%s %s and %s %s are of different families", a.Words.Name(Source), p.Source, a.Words.Name(Destination), p.Destination)
	}
	return nil
}

// broadcast is everybody on the network of an interface.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// way says which way the packet goes: to the host, through it or from it.
func (a asked) way(p *packet.Packet) (packet.Way, error) {
	known := a.Resolved.Facts.Known
	ours := func(x netip.Addr) bool { return x.IsValid() && reference.Own(a.Resolved.Facts, x) }
	elsewhere := p.Destination.IsValid() && known && !ours(p.Destination) && !p.Destination.IsMulticast() && p.Destination != broadcast
	refuse := func(end netip.Addr, is string) error {
		hook := a.Words.Name(Hook)
		return wrong(fmt.Sprintf("omit %s: it follows from %s and %s", hook, a.Words.Name(Source), a.Words.Name(Destination)),
			"%s %s: %s is %s address of this host", hook, a.Hook, end, is)
	}
	switch way := packet.Way(a.Hook); way {
	case packet.In:
		if elsewhere {
			return "", refuse(p.Destination, "not an")
		}
		return way, nil
	case packet.Through:
		if known && p.Destination.IsValid() && ours(p.Destination) {
			return "", refuse(p.Destination, "an")
		}
		return way, nil
	case packet.Out:
		if known && p.Source.IsValid() && !ours(p.Source) {
			return "", refuse(p.Source, "not an")
		}
		return way, nil
	case "":
	default:
		return "", wrong("use input, forward or output", "%s %q: unknown hook", a.Words.Name(Hook), a.Hook)
	}
	switch {
	case a.User != "" || ours(p.Source) && a.In == "" || !p.Source.IsValid() && p.Destination.IsLoopback():
		return packet.Out, nil
	case elsewhere && !p.Source.IsValid():
		return packet.Out, nil
	case elsewhere || a.Out != "":
		return packet.Through, nil
	}
	return packet.In, nil
}

// ends fills in the addresses and interfaces that were not said.
func (a asked) ends(p *packet.Packet, way packet.Way) error {
	for _, said := range []struct {
		field       Field
		text, wrong string
	}{
		{In, a.In, map[packet.Way]string{packet.Out: "packets that the host sends arrive on no interface"}[way]},
		{Out, a.Out, map[packet.Way]string{packet.In: "packets for the host leave by no interface"}[way]},
	} {
		if said.text != "" && said.wrong != "" {
			return wrong("", "%s %s cannot be used on %s: %s", a.Words.Name(said.field), said.text, way, said.wrong)
		}
	}
	if way == packet.Out {
		return a.sent(p)
	}
	to := a.Words.Name(Destination)
	if !p.Source.IsValid() {
		return wrong(fmt.Sprintf("give %s ADDRESS; for packets that this host sends, give %s ADDRESS or %s output", a.Words.Name(Source), to, a.Words.Name(Hook)), "where does the packet come from?")
	}
	if p.In == "" {
		if names, _ := a.arrivals(p.Source, p.Destination); len(names) > 0 {
			p.In = names[0]
		}
	}
	if p.Destination.IsValid() {
		return nil
	}
	if way == packet.Through {
		return wrong(fmt.Sprintf("give %s ADDRESS", to), "where does the packet go?")
	}
	if p.Destination = ownAddress(a.Resolved.Facts, p.In, p.Source); !p.Destination.IsValid() {
		return wrong(fmt.Sprintf("give %s ADDRESS", to), "no IPv%d address of this host is known", familyOf(p.Source))
	}
	return nil
}

// sent fills in the ends of what the host sends.
func (a asked) sent(p *packet.Packet) error {
	if !p.Destination.IsValid() {
		return wrong(fmt.Sprintf("give %s ADDRESS", a.Words.Name(Destination)), "where does the packet go?")
	}
	if p.Source.IsValid() {
		return nil
	}
	device := p.Out
	if device == "" {
		switch w := a.Route(host.Trip{Destination: p.Destination, User: -1}); {
		case w.Leads == host.Here:
			device = "lo"
		case len(w.Out) > 0:
			device = w.Out[0]
		}
	}
	if device == "lo" {
		p.Source = p.Destination
		return nil
	}
	if p.Source = ownAddress(a.Resolved.Facts, device, p.Destination); !p.Source.IsValid() {
		return wrong(fmt.Sprintf("give %s ADDRESS", a.Words.Name(Source)), "no IPv%d address of this host is known", familyOf(p.Destination))
	}
	return nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// ownAddress is the host's address that the other end asks: on the interface,
// in its network where there is one, else wherever the host has one.
func ownAddress(f host.Facts, device string, other netip.Addr) netip.Addr {
	best, score := netip.Addr{}, 0
	for _, i := range f.Interfaces {
		for _, p := range i.Addresses {
			a := p.Addr()
			if a.Is4() != other.Is4() || a.IsLinkLocalUnicast() != other.IsLinkLocalUnicast() || a.IsLoopback() && !other.IsLoopback() {
				continue
			}
			points := 1
			if i.Name == device {
				points = 2
				if p.Masked().Contains(other) {
					points = 3
				}
			}
			if points > score {
				best, score = a, points
			}
		}
	}
	return best
}
