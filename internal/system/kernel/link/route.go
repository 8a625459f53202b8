package link

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Routing answers by which devices packets go, as Ask has it. It keeps the answers,
// and is for one moment.
type Routing struct {
	ports bool // a rule of policy routing asks for protocols or ports
	found map[Lookup]way
}

// way is where a packet goes by.
type way struct {
	Found
	device string
	err    error
}

// NewRouting begins with nothing asked.
func NewRouting() *Routing {
	r := &Routing{found: map[Lookup]way{}}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := Rules(family)
		r.ports = r.ports || err != nil // then anything may be asked for
		for _, rule := range rules {
			r.ports = r.ports || rule.Protocol != 0 || rule.SourcePorts != [2]uint16{} || rule.Ports != [2]uint16{}
		}
	}
	return r
}

// Toward is the name of the device that a packet leaves by. Of several next hops it
// is the one that the kernel chooses for this packet.
//
// The destination alone is asked where the kernel does not take the source: by
// rp_filter, by a device that does not forward, or since it is not the host's.
func (r *Routing) Toward(l Lookup) (device string, err error) {
	w := r.ask(l)
	if w.Error == unix.EINVAL || w.Error != 0 && l.In != 0 {
		w = r.ask(Lookup{Destination: l.Destination, Mark: l.Mark, User: -1})
	}
	return w.device, w.err
}

// From is the name of the device that a packet comes in by, as its answer leaves by
// the same one, unless routing is asymmetric.
func (r *Routing) From(l Lookup) (device string, err error) {
	answer := Lookup{
		Source: l.Destination, Destination: l.Source, Mark: l.Mark, TOS: l.TOS,
		Protocol: l.Protocol, SourcePort: l.Port, Port: l.SourcePort, User: -1,
	}
	if to := r.ask(Lookup{Destination: l.Destination, Mark: l.Mark, User: -1}); to.Type == unix.RTN_UNICAST && to.err == nil {
		answer.In = to.Chosen // it is forwarded
	}
	return r.Toward(answer)
}

// Through is the names of the devices that a forwarded packet comes in and leaves by.
func (r *Routing) Through(l Lookup) (in, out string, err error) {
	if in, err = r.From(l); err != nil {
		return "", "", err
	}
	if d, failed := netlink.LinkByName(in); failed == nil {
		l.In = d.Attrs().Index
	}
	out, err = r.Toward(l)
	return in, out, err
}

func (r *Routing) ask(l Lookup) way {
	l.Source, l.Destination = l.Source.WithZone(""), l.Destination.WithZone("")
	if !r.ports {
		l.Protocol, l.SourcePort, l.Port = 0, 0, 0
	}
	w, known := r.found[l]
	if !known {
		w = goes(l)
		r.found[l] = w
	}
	return w
}

// goes asks for one packet.
func goes(l Lookup) (w way) {
	if w.Found, w.err = Ask(l); w.err != nil {
		return w
	}
	switch {
	case w.Error != 0:
		w.err = fmt.Errorf("find the route to %s: %w", l.Destination, w.Error)
	case w.Chosen == 0:
		w.err = fmt.Errorf("find the route to %s: it leaves by no device", l.Destination)
	default:
		d, err := netlink.LinkByIndex(w.Chosen)
		if err != nil {
			w.err = errors.Join(fmt.Errorf("find the route to %s", l.Destination), err)
			return w
		}
		w.device = d.Attrs().Name
	}
	return w
}

// Way is the device that a packet which the host sends leaves by, with the address of
// this host that it bears where its sender chose none.
func Way(l Lookup) (device string, source netip.Addr, err error) {
	w := goes(l)
	if w.Error == unix.EINVAL && l.Source.IsValid() { // it is not the host's
		l.Source = netip.Addr{}
		w = goes(l)
	}
	return w.device, w.Found.Source, w.err
}

// RouterToward is the router that a packet which the host sends goes by, the
// destination itself where that is a neighbour.
func RouterToward(l Lookup) netip.Addr {
	if found, err := Ask(l); err == nil && found.Via.IsValid() {
		return found.Via
	}
	return l.Destination
}
