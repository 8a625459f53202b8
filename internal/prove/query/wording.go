package query

import (
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// newWording prepares the words for what a universe tells apart.
func newWording(u *reach.Universe, n *Names, states []packet.State, policies ...Compiled) *wording {
	w := &wording{universe: u, names: n, states: states, limits: map[string]string{}, bounds: map[string]string{}}
	for _, c := range policies {
		w.policies = append(w.policies, c.Resolved)
		w.nameLimits(c.Program)
	}
	return w
}

// nameLimits notes by which line a limit is written.
func (w *wording) nameLimits(p *program.Program) {
	for _, g := range gatesOf(p) {
		text := program.ActionText(*g.action)
		if w.bounds[text] != "" {
			continue
		}
		w.bounds[text] = bound(*g.action)
		w.limits["gate:"+text] = "the limit of " + w.bounds[text]
		if o := g.rule.Origin; o.Line != 0 {
			w.limits["gate:"+text] += " at " + Decider{File: o.File, Line: o.Line}.String()
		}
	}
	for i := range p.Sets {
		s := &p.Sets[i]
		if s.Life != program.Dynamic && s.ID != program.ExemptSet {
			continue
		}
		if s.Others {
			continue
		}
		what := "by a limit"
		if s.Commands {
			what = "by a command"
		}
		for _, f := range []program.Field{program.Source, program.Destination} {
			text := "the " + strings.ReplaceAll(string(f), "-", " ") + ", " + what
			if s.Life == program.Followed {
				text = "exempt from bans by limits: the " + string(f)
			}
			w.limits["table:"+s.ID+" "+string(f)] = text
		}
	}
}
