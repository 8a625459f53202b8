package question

import (
	"strings"

	"sluice/internal/packet"
	"sluice/internal/program"
	"sluice/internal/reach"
)

// newWording prepares the words for what a universe tells apart.
func newWording(u *reach.Universe, n *Names, states []packet.State, policies ...Compiled) *wording {
	w := &wording{universe: u, names: n, states: states, limits: map[string]string{}}
	for _, c := range policies {
		w.policies = append(w.policies, c.Resolved)
		w.nameLimits(c.Program)
	}
	return w
}

// nameLimits notes by which line a limit is written.
func (w *wording) nameLimits(p *program.Program) {
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			for _, a := range r.Actions {
				switch a.(type) {
				case program.Limit, program.ConnectionLimit:
					w.limits["gate:"+program.ActionText(a)] = "the limit of " + Decider{File: r.Origin.File, Line: r.Origin.Line, Text: "a rule"}.String()
				}
			}
		}
	}
	for i := range p.Sets {
		s := &p.Sets[i]
		if s.Life != program.Dynamic {
			continue
		}
		what := "by a limit"
		if s.Commands {
			what = "by a command"
		}
		for _, f := range []program.Field{program.Source, program.Destination} {
			w.limits["table:"+s.ID+" "+string(f)] = "the " + strings.ReplaceAll(string(f), "-", " ") + ", " + what
		}
	}
}
