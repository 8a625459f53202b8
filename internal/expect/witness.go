package expect

import (
	"slices"

	"sluice/internal/host"
	"sluice/internal/packet"
	"sluice/internal/policy"
	"sluice/internal/reach"
)

// witness is a packet of a region, of those that the host is most likely to see:
// by the interface of its default route and to an address of that, else by one
// that it has.
func (j *judge) witness(l *line, way packet.Way, region reach.Region) packet.Packet {
	p := j.universe.Witness(way, region)
	try := func(change func(*packet.Packet)) bool {
		q := p
		change(&q)
		if q == p || !j.universe.Holds(region, q) {
			return false
		}
		p = q
		return true
	}
	devices := j.devices()
	if l.hook != policy.Output {
		for _, i := range devices {
			if i.Name == p.In || try(func(q *packet.Packet) { q.In = i.Name }) {
				break
			}
		}
	}
	if way != packet.In {
		for _, i := range devices {
			if i.Name == p.Out || i.Name != p.In && try(func(q *packet.Packet) { q.Out = i.Name }) {
				break
			}
		}
	}
	for _, i := range devices {
		for _, a := range i.Addresses {
			switch {
			case a.Addr().Is4() != p.Destination.Is4():
			case l.hook == policy.Input && i.Name == p.In && try(func(q *packet.Packet) { q.Destination = a.Addr() }),
				l.hook == policy.Output && i.Name == p.Out && try(func(q *packet.Packet) { q.Source = a.Addr() }):
				return p
			}
		}
	}
	return p
}

// devices are the host's interfaces but loopback, those of the default route
// first.
func (j *judge) devices() []host.Interface {
	out := slices.DeleteFunc(slices.Clone(j.Facts.Interfaces), func(i host.Interface) bool { return i.Name == loopback })
	slices.SortStableFunc(out, func(a, b host.Interface) int {
		return j.fromDefault(a.Name) - j.fromDefault(b.Name)
	})
	return out
}

func (j *judge) fromDefault(name string) int {
	if slices.Contains(j.Facts.DefaultRoute, name) {
		return 0
	}
	return 1
}
