package reference

import (
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// mostWays bounds how many ways of one packet are followed.
const mostWays = 64

// Ways is Explain with routing asked where the packet goes: to the host, through it
// and out by which interface, or nowhere. The answers are one for each way that
// routing may choose and nobody can know before: next hops that a hash of the
// flow chooses among. An interface that the packet is said to leave by is taken
// as given where there is a route at all, and of the rest, Explain's way is where routing does not know.
func Ways(r *resolve.Resolved, p packet.Packet, way packet.Way, ask host.Router) (out []Path) {
	var taken, of []int
	for len(out) < mostWays {
		at := 0
		w := &walk{Resolved: r, packet: p, way: way, moved: p.DNAT, router: ask, choose: func(n int) int {
			if at == len(taken) {
				taken, of = append(taken, 0), append(of, n)
			}
			at++
			return taken[at-1]
		}}
		w.locate()
		out = append(out, w.run())
		// The next choice in the order of counting.
		for len(taken) > 0 && taken[len(taken)-1] == of[len(of)-1]-1 {
			taken, of = taken[:len(taken)-1], of[:len(of)-1]
		}
		if len(taken) == 0 {
			break
		}
		taken[len(taken)-1]++
	}
	return out
}

func (w *walk) trip() host.Trip {
	p := &w.packet
	t := host.Trip{
		Source: p.Source, Destination: p.Destination, In: p.In, Mark: p.Mark, Protocol: p.Protocol,
		SourcePort: p.SourcePort, Port: p.Port, User: -1,
	}
	if w.way == packet.Out {
		t.In, t.User = "", p.Owner
	}
	return t
}

// routeAsked leads the packet where the router says.
func (w *walk) routeAsked() {
	p := &w.packet
	w.routed = w.router(w.trip())
	switch w.routed.Leads {
	case host.Here:
		if w.way == packet.Through {
			w.step("routing", noPos, "", "it is an address of this host, so the packet is for this host")
		}
		w.way, p.Out = packet.In, ""
		return
	case host.Nowhere:
		w.lost()
		return
	case host.Onward:
		w.way = packet.Through
		if p.Out == "" {
			p.Out = w.routed.Out[w.choose(len(w.routed.Out))]
		}
	case host.Unknown:
		if w.way != packet.Through {
			return
		}
		w.anyDevice()
	}
	reason := "it is not an address of this host, so the packet is forwarded" + by(p.Out)
	switch {
	case w.routed.Leads == host.Onward && !slices.Contains(w.routed.Out, p.Out):
		reason += ", as given; it is routed out by " + strings.Join(w.routed.Out, " or ")
	case w.routed.Why != "":
		reason += ": " + w.routed.Why
	}
	w.step("routing", noPos, "", reason)
}

// leaveBy is by which interface the packet leaves that the host sends.
func (w *walk) leaveBy() {
	p := &w.packet
	if w.router == nil || p.Destination.IsMulticast() || p.Destination == broadcast {
		p.Out = w.interfaceTo(p.Destination)
		return
	}
	w.routed = w.router(w.trip())
	switch w.routed.Leads {
	case host.Here:
		p.Out = loopback
	case host.Onward:
		p.Out = w.routed.Out[w.choose(len(w.routed.Out))]
	case host.Nowhere:
		w.lost()
	case host.Unknown:
		p.Out = ""
		w.anyDevice()
	}
}

// leads says whether routing has a way for a packet that the host sends by an interface
// that was said. A socket that is bound to one is routed by it where a rule of routing
// asks for it, or it is in a VRF; those are taken as they were said.
func (w *walk) leads() bool {
	p := &w.packet
	if w.router == nil || p.Out == loopback || p.Destination.IsMulticast() || p.Destination == broadcast {
		return true
	}
	inVRF := func(i host.Interface) bool { return i.Name == p.Out && (i.VRF != "" || i.VRFTable != 0) }
	if slices.ContainsFunc(w.Facts.Interfaces, inVRF) {
		return true
	}
	if r := w.Facts.Routing; r != nil && slices.ContainsFunc(r.Rules, func(r host.RoutingRule) bool { return r.Out != "" }) {
		return true
	}
	w.routed = w.router(w.trip())
	return w.routed.Leads != host.Nowhere
}

// anyDevice takes each interface of the host for the one that the packet leaves by,
// where nobody knows which it is.
func (w *walk) anyDevice() {
	p := &w.packet
	if p.Out != "" {
		return
	}
	names := Devices(w.Facts)
	if len(names) > 0 {
		p.Out = names[w.choose(len(names))]
	}
}

// Devices are the interfaces by which packets may come and go.
func Devices(f host.Facts) (names []string) {
	for _, i := range f.Interfaces {
		if i.Name != loopback && i.Up && i.Master == "" {
			names = append(names, i.Name)
		}
	}
	return names
}

func (w *walk) lost() {
	hook := policy.Input
	switch w.way {
	case packet.Through:
		hook = policy.Forward
	case packet.Out:
		hook = policy.Output
	}
	w.hook = hook
	w.ends(policy.Drop, "routing", noPos, "", w.routed.Why)
}
