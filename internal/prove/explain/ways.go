package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// wayTaken is a packet on one of the ways that it may go.
type wayTaken struct {
	packet packet.Packet // as it was asked, with what this way has
	path   reference.Path
}

// follow follows the packet on each way that it may go: by each interface that it may
// come in by, with each mark that routing tells apart, and where routing may lead it.
func (e *Followed) follow(q Question) {
	ins, outs := []string{e.Packet.In}, []string{e.Packet.Out}
	if q.In == "" && e.Way != packet.Out {
		if ins, _ = e.arrivals(e.Packet.Source, e.Packet.Destination); len(ins) == 0 {
			ins = []string{""}
		}
	}
	marks := []uint32{e.Packet.Mark}
	if q.Mark == "" {
		marks = e.Resolved.Facts.Routing.Marks(e.Packet.Destination.Is6())
	}
	for _, mark := range marks {
		for _, in := range ins {
			p := e.Packet
			p.Mark, p.In = mark, in
			if e.Way == packet.Out && q.Out == "" {
				outs = e.departures(p)
			}
			for _, out := range outs {
				p.Out = out
				for _, path := range reference.Ways(e.Resolved, p, e.Way, e.Route) {
					e.ways = append(e.ways, wayTaken{p, path})
				}
			}
		}
	}
	e.Packet, e.Path = e.ways[0].packet, e.ways[0].path
}

// departures are the interfaces that a packet which the host sends may leave by;
// one that is "" where reference.Ways has more to say.
func (s Subject) departures(p packet.Packet) []string {
	w := s.Route(host.Trip{Source: p.Source, Destination: p.Destination, Mark: p.Mark, Protocol: p.Protocol, SourcePort: p.SourcePort, Port: p.Port, User: p.Owner})
	if w.Leads == host.Onward && !p.Destination.IsMulticast() && p.Destination != broadcast {
		return w.Out
	}
	return []string{""}
}

// arrivals are the interfaces by which a packet may come from an address: those by
// which the host would answer it, or any where it has no route there, and whether
// routing says so.
func (s Subject) arrivals(from, to netip.Addr) (names []string, known bool) {
	back := host.Trip{Destination: from, User: -1}
	if to.IsValid() && reference.Own(s.Resolved.Facts, to) {
		back.Source = to // the kernel sends nothing in another's name
	}
	switch w := s.Route(back); w.Leads {
	case host.Onward:
		return w.Out, true
	case host.Here:
		return []string{"lo"}, true
	}
	return reference.Devices(s.Resolved.Facts), false
}

// Undecided says that the ways of the packet end differently.
func (e *Followed) Undecided() bool {
	return slices.ContainsFunc(e.ways, func(w wayTaken) bool { return !sameEnd(w.path, e.Path) })
}

func sameEnd(a, b reference.Path) bool {
	return a.Verdict == b.Verdict && a.Hook == b.Hook && a.Stage == b.Stage && a.Pos == b.Pos
}

// names are what the ways have for an interface, without doubles.
func (e *Followed) names(of func(wayTaken) string) (out []string) {
	for _, w := range e.ways {
		if name := of(w); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func (w wayTaken) in() string { return w.packet.In }

func (w wayTaken) out() string {
	switch w.path.Hook {
	case policy.Forward:
		return w.path.Packet.Out
	case policy.Output:
		return w.packet.Out
	}
	return ""
}

func (w wayTaken) mark() string { return fmt.Sprintf("%#x", w.packet.Mark) }

// WayView is one way of a packet whose verdict depends on its way.
type WayView struct {
	In      string        `json:"in,omitempty"`
	Out     string        `json:"out,omitempty"`
	Mark    uint32        `json:"mark,omitempty"`
	Verdict policy.Action `json:"verdict"`
	Hook    policy.Hook   `json:"hook"`
	Stage   string        `json:"stage"`
	Why     string        `json:"why"`
	Line    *Line         `json:"line"`
	Label   string        `json:"label"` // what tells it from the others, for a reader
}

// viewWays are the ways, those that end alike and are told apart by nothing once.
func (e *Followed) viewWays() (out []WayView) {
	several := func(of func(wayTaken) string) bool { return len(e.names(of)) > 1 }
	marked, ins, outs := several(wayTaken.mark), several(wayTaken.in), several(wayTaken.out)
	for _, w := range e.ways {
		v := WayView{
			In: w.in(), Out: w.out(), Mark: w.packet.Mark, Verdict: w.path.Verdict, Hook: w.path.Hook, Stage: w.path.Stage,
			Why: w.path.Why, Line: lineOf(w.path.Pos, w.path.Text),
		}
		var label []string
		switch {
		case marked && w.packet.Mark == 0:
			label = append(label, "without a mark")
		case marked:
			label = append(label, "with mark "+w.mark())
		}
		if ins {
			label = append(label, "in by "+v.In)
		}
		if outs && v.Out != "" {
			label = append(label, "out by "+v.Out)
		}
		v.Label = strings.Join(label, ", ")
		if v.Label == "" {
			v.Label = map[policy.Hook]string{policy.Input: "to this host itself", policy.Forward: "forwarded", policy.Output: "sent"}[v.Hook]
		}
		out = append(out, v)
	}
	return out
}

// doubts say why the way of the packet is not known, and what of the packet would
// tell it.
func (e *Followed) doubts() (out []string) {
	add := func(text string, unsaid Field, more string) {
		text += ": give " + e.Words.Name(unsaid) + more
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(e.names(wayTaken.mark)) > 1 {
		add("routing rules (ip rule) go by the mark of the packet, which is not known", Mark, ", or 0 for packets that nothing marks")
	}
	if len(e.names(wayTaken.in)) > 1 {
		from := e.Packet.Source
		if _, known := e.arrivals(from, e.Packet.Destination); known {
			add(fmt.Sprintf("%s is reached by several interfaces, and a packet from there may arrive on any of them", from), In, "")
		} else {
			add(fmt.Sprintf("this host has no route to %s, so it is not known on which interface a packet from there arrives", from), In, "")
		}
	}
	for _, w := range e.ways {
		if len(w.path.Route.Out) > 1 || w.path.Route.Leads == host.Unknown {
			add(w.path.Route.Why, Out, "")
		}
	}
	if len(out) == 0 && len(e.names(wayTaken.out)) > 1 {
		add("a hash of the flow chooses among the next hops of its route", Out, "")
	}
	return out
}
