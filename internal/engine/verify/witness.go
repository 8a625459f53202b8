package verify

import (
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/prove/reach"
)

// Device is an interface of the host whose kernel was read, other than loopback.
type Device struct {
	Name      string
	Addresses []netip.Addr
}

// addressesOf is the addresses of all devices.
func addressesOf(devices []Device) addrset.Set {
	var own addrset.Builder
	for _, d := range devices {
		for _, a := range d.Addresses {
			own.AddAddr(a)
		}
	}
	return own.Set()
}

// likely is the witness of a region as it can be met on this host, as far as the
// region has such: by interfaces that there are, and to or from an address of
// theirs. One to 127.0.0.0/8, which may be as good to the rules, reaches no host.
func likely(u *reach.Universe, d reach.Difference, devices []Device) packet.Packet {
	p := d.Witness
	try := func(change func(*packet.Packet)) bool {
		q := p
		change(&q)
		if !u.Holds(d.Region, q) {
			return false
		}
		p = q
		return true
	}
	own := &p.Destination
	if d.Way == reach.Out {
		own = &p.Source
	}
	for _, i := range devices {
		for _, a := range i.Addresses {
			if d.Way == reach.Through || a.Is4() != own.Is4() || a.IsLinkLocalUnicast() {
				continue
			}
			if d.Way == reach.In && try(func(q *packet.Packet) { q.In, q.Destination = i.Name, a }) ||
				d.Way == reach.Out && try(func(q *packet.Packet) { q.Out, q.Source = i.Name, a }) {
				return p
			}
		}
	}
	for _, i := range devices {
		if d.Way != reach.Out && try(func(q *packet.Packet) { q.In = i.Name }) {
			break
		}
	}
	for _, i := range devices {
		if d.Way != reach.In && i.Name != p.In && try(func(q *packet.Packet) { q.Out = i.Name }) {
			break
		}
	}
	return p
}
