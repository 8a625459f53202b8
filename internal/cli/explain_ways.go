package cli

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/cli/command"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// wayTaken is a packet on one of the ways that it may go.
type wayTaken struct {
	packet packet.Packet // as it was asked, with what this way has
	path   reference.Path
}

// unknownVerdict stands for the verdict where it depends on what nobody knows.
const unknownVerdict policy.Action = "unknown"

// follow follows the packet on each way that it may go: by each interface that it may
// come in by, with each mark that routing tells apart, and where routing may lead it.
func (e *explained) follow(asked askedPacket) {
	ins, outs := []string{e.packet.In}, []string{e.packet.Out}
	if asked.in == "" && e.way != packet.Out {
		if ins, _ = arrivals(e.facts, asked.ask, e.packet.Source, e.packet.Destination); len(ins) == 0 {
			ins = []string{""}
		}
	}
	marks := []uint32{e.packet.Mark}
	if asked.mark == "" {
		marks = e.facts.Routing.Marks(e.packet.Destination.Is6())
	}
	for _, mark := range marks {
		for _, in := range ins {
			p := e.packet
			p.Mark, p.In = mark, in
			if e.way == packet.Out && asked.out == "" {
				outs = departures(asked.ask, p)
			}
			for _, out := range outs {
				p.Out = out
				for _, path := range reference.Ways(e.resolved, p, e.way, asked.ask) {
					e.ways = append(e.ways, wayTaken{p, path})
				}
			}
		}
	}
	e.packet, e.path = e.ways[0].packet, e.ways[0].path
}

// departures are the interfaces that a packet which the host sends may leave by;
// one that is "" where reference.Ways has more to say.
func departures(ask host.Router, p packet.Packet) []string {
	w := ask(host.Trip{Source: p.Source, Destination: p.Destination, Mark: p.Mark, Protocol: p.Protocol, SourcePort: p.SourcePort, Port: p.Port, User: p.Owner})
	if w.Leads == host.Onward && !p.Destination.IsMulticast() && p.Destination != broadcast {
		return w.Out
	}
	return []string{""}
}

// arrivals are the interfaces by which a packet may come from an address: those by
// which the host would answer it, or any where it has no route there, and whether
// routing says so.
func arrivals(f host.Facts, ask host.Router, from, to netip.Addr) (names []string, known bool) {
	back := host.Trip{Destination: from, User: -1}
	if to.IsValid() && reference.Own(f, to) {
		back.Source = to // the kernel sends nothing in another's name
	}
	switch w := ask(back); w.Leads {
	case host.Onward:
		return w.Out, true
	case host.Here:
		return []string{"lo"}, true
	}
	return reference.Devices(f), false
}

// undecided says that the ways of the packet end differently.
func (e *explained) undecided() bool {
	return slices.ContainsFunc(e.ways, func(w wayTaken) bool { return !sameEnd(w.path, e.path) })
}

func sameEnd(a, b reference.Path) bool {
	return a.Verdict == b.Verdict && a.Hook == b.Hook && a.Stage == b.Stage && a.Pos == b.Pos
}

// names are what the ways have for an interface, without doubles.
func (e *explained) names(of func(wayTaken) string) (out []string) {
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

// wayView is one way of a packet whose verdict depends on its way.
type wayView struct {
	In      string        `json:"in,omitempty"`
	Out     string        `json:"out,omitempty"`
	Mark    uint32        `json:"mark,omitempty"`
	Verdict policy.Action `json:"verdict"`
	Hook    policy.Hook   `json:"hook"`
	Stage   string        `json:"stage"`
	Why     string        `json:"why"`
	Line    *lineView     `json:"line"`

	label string
}

// viewWays are the ways, those that end alike and are told apart by nothing once.
func (e *explained) viewWays() (out []wayView) {
	several := func(of func(wayTaken) string) bool { return len(e.names(of)) > 1 }
	marked, ins, outs := several(wayTaken.mark), several(wayTaken.in), several(wayTaken.out)
	for _, w := range e.ways {
		v := wayView{
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
		v.label = strings.Join(label, ", ")
		if v.label == "" {
			v.label = map[policy.Hook]string{policy.Input: "to this host itself", policy.Forward: "forwarded", policy.Output: "sent"}[v.Hook]
		}
		out = append(out, v)
	}
	return out
}

// viewUndecided is the answer where the ways end differently.
func (e *explained) viewUndecided(v explainView) (explainView, error) {
	v.Verdict, v.Hook, v.Stage, v.Line = unknownVerdict, "", "", nil
	v.Why = "it depends on the way that the packet goes"
	v.Ways, v.Unsure = e.viewWays(), e.unsure
	v.Sentence = e.sentence(v)
	v.Notes = e.notes()
	v.Live = e.live
	var err error
	v.Program, err = e.askProgram()
	return v, err
}

// doubts say why the way of the packet is not known, and with which flags it would be.
func (e *explained) doubts(asked askedPacket) (out []string) {
	add := func(text string) {
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(e.names(wayTaken.mark)) > 1 {
		add("rules of routing (ip rule) tell packets by their mark, which is not known: say --mark, 0 for what nothing marks")
	}
	if len(e.names(wayTaken.in)) > 1 {
		_, known := arrivals(e.facts, asked.ask, e.packet.Source, e.packet.Destination)
		if known {
			add(fmt.Sprintf("%s is reached by several interfaces, of which a packet from there may come in by each: say --in", e.packet.Source))
		} else {
			add(fmt.Sprintf("this host has no route to %s, so nobody knows by which interface a packet from there comes in: say --in", e.packet.Source))
		}
	}
	for _, w := range e.ways {
		if len(w.path.Route.Out) > 1 || w.path.Route.Leads == host.Unknown {
			add(w.path.Route.Why + ": say --out")
		}
	}
	if len(out) == 0 && len(e.names(wayTaken.out)) > 1 {
		add("a hash of the flow chooses among the next hops of its route: say --out")
	}
	return out
}

// printWays prints how a packet ends on each of its ways.
func (e *explained) printWays(w io.Writer, ways []wayView) {
	var said []string
	for _, v := range ways {
		style := verdictWords[v.Verdict]
		end := ": " + v.Why
		if v.Line != nil {
			end = fmt.Sprintf(" by %s:%d:%d: %s", v.Line.File, v.Line.Line, v.Line.Column, v.Line.Text)
		}
		plain := v.label + ": " + string(v.Verdict) + end
		if slices.Contains(said, plain) {
			continue
		}
		said = append(said, plain)
		fmt.Fprintf(w, "  %s: %s%s\n", v.label, command.Paint(w, style.style, style.word), end)
	}
}
