package resolve

import (
	"fmt"
	"slices"
)

// loopback is the interface by which a host talks to itself.
const loopback = "lo"

// guests refuses guests that would take from the host what is its own: their addresses, which
// the fleet has signed a range for, and interfaces, of which nothing is signed, may be the host's.
func (r *resolver) guests() {
	p, facts := r.out.Policy, &r.opt.Facts
	if p.Fleet == nil || !facts.Known {
		return
	}
	for i := range p.Held {
		h := &p.Held[i]
		at := h.Interface.Pos
		if at.Line == 0 {
			at = h.Pos
		}
		if name := h.Interface.Text; name == loopback || slices.Contains(facts.DefaultRoute, name) {
			r.fail(at, fmt.Sprintf("guest %s: %s cannot be the interface of a guest: the host reaches itself or others through it", h.Guest, name), "name the interface that the guest is attached to")
		}
	}
	own := facts.Own(nil)
	for i := range p.Fleet.Guests {
		g := &p.Fleet.Guests[i]
		for _, a := range slices.Concat(g.Addresses, g.Public) {
			at := a.Pos
			if at.Line == 0 {
				at = g.Pos
			}
			if a.Range.From == a.Range.To && slices.Contains(own, a.Range.From) {
				r.fail(at, fmt.Sprintf("guest %s: %s is an address of this host", g.Name, a.Range), "give it another one")
			}
		}
	}
}
