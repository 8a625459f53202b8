package query

import (
	"fmt"
	"slices"

	"sluice/internal/program"
)

// gate is a limit as a rule of a program asks it.
type gate struct {
	action *program.Action
	rule   *program.Rule
}

func gatesOf(p *program.Program) []gate {
	var out []gate
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			for k := range r.Actions {
				if e := program.EffectOf(r.Actions[k]); e.Gates && e.Bounds {
					out = append(out, gate{&r.Actions[k], r})
				}
			}
		}
	}
	return out
}

// bounds is what a limit lets through: packets at a rate, or a number of connections.
type bounds struct {
	name, table string
	per         program.SourceKey
	rate        program.Rate // of a number of connections: zero
	connections uint32
	ban         uint64 // milliseconds for which it bans a source; 0: it bans none
	widens      bool   // it bans prefixes too

	named func(name, table string) program.Action // the same under another name
}

func boundsOf(a program.Action) bounds {
	switch a := a.(type) {
	case program.Limit:
		out := bounds{name: a.Name, table: a.Table, per: a.Per, rate: a.Rate}
		if a.Ban != "" {
			out.ban, out.widens = a.BanTimeout, a.Over != ""
		}
		out.named = func(name, table string) program.Action {
			a.Name, a.Table = name, table
			return a
		}
		return out
	case program.ConnectionLimit:
		return bounds{name: a.Name, table: a.Table, per: a.Per, connections: a.Max, named: func(name, table string) program.Action {
			a.Name, a.Table = name, table
			return a
		}}
	}
	return bounds{}
}

// alignLimits gives the limits of a new program the names of those of the old one
// that bound as much. Names come from what a rule says, so a rule that says the
// same in other words would have another limit. Which of several goes with which
// is told by what their rules match, then by their order.
func alignLimits(old, next *program.Program) *program.Program {
	out := *next
	out.Chains = slices.Clone(next.Chains)
	for i := range out.Chains {
		out.Chains[i].Rules = slices.Clone(out.Chains[i].Rules)
		for j := range out.Chains[i].Rules {
			out.Chains[i].Rules[j].Actions = slices.Clone(out.Chains[i].Rules[j].Actions)
		}
	}
	type limit struct {
		name, table, bound, asks string
	}
	list := func(p *program.Program) []limit {
		var out []limit
		for _, g := range gatesOf(p) {
			b := boundsOf(*g.action)
			at := slices.IndexFunc(out, func(l limit) bool { return l.name == b.name })
			if at < 0 {
				at = len(out)
				out = append(out, limit{name: b.name, table: b.table, bound: program.ActionText(b.named("", ""))})
			}
			for _, c := range g.rule.Match {
				out[at].asks += c.String() + ", "
			}
			out[at].asks += "; "
		}
		return out
	}
	have, want := list(old), list(&out)
	taken, to := map[string]bool{}, map[string]limit{}
	for _, fits := range []func(a, b limit) bool{
		func(a, b limit) bool { return a.name == b.name },
		func(a, b limit) bool { return a.asks == b.asks },
		func(limit, limit) bool { return true },
	} {
		for _, w := range want {
			if _, done := to[w.name]; done {
				continue
			}
			for _, h := range have {
				if !taken[h.name] && h.bound == w.bound && fits(h, w) {
					taken[h.name], to[w.name] = true, h
					break
				}
			}
		}
	}
	for _, g := range gatesOf(&out) {
		b := boundsOf(*g.action)
		if h, ok := to[b.name]; ok {
			*g.action = b.named(h.name, h.table)
		} else if slices.ContainsFunc(have, func(h limit) bool { return h.name == b.name }) {
			*g.action = b.named(b.name+" of the new policy", "")
		}
	}
	return &out
}

// asTight says whether what passes the new limits, given as ActionText has them,
// would have passed the old ones: each old one goes with a new one that is no
// looser.
func asTight(old, next []string, params map[string]program.Action) bool {
	return !slices.ContainsFunc(old, func(o string) bool {
		return !slices.ContainsFunc(next, func(n string) bool { return noLooser(params[o], params[n]) })
	})
}

func noLooser(old, next program.Action) bool {
	o, n := boundsOf(old), boundsOf(next)
	return o.named != nil && n.named != nil && o.per == n.per && (o.rate == program.Rate{}) == (n.rate == program.Rate{}) &&
		n.rate.Packets*o.rate.Per <= o.rate.Packets*n.rate.Per && n.rate.Burst <= o.rate.Burst && n.connections <= o.connections
}

// bound says how much a limit lets through.
func bound(a program.Action) string {
	b := boundsOf(a)
	text := fmt.Sprintf("%d connections", b.connections)
	if b.rate != (program.Rate{}) {
		text = fmt.Sprintf("%d/%s", b.rate.Packets, milliseconds(b.rate.Per))
	}
	if b.per != program.Together {
		text += " per source"
	}
	if b.rate.Burst != b.rate.Packets {
		text += fmt.Sprintf(" burst %d", b.rate.Burst)
	}
	if b.ban != 0 {
		text += " then ban " + span(b.ban)
		if b.widens {
			text += " widen"
		}
	}
	return text
}

// units of time, the longest first, in milliseconds.
var units = []struct {
	of         uint64
	word, each string
}{{24 * 3600 * 1000, "d", "day"}, {3600 * 1000, "h", "hour"}, {60 * 1000, "m", "minute"}, {1000, "s", "second"}}

// milliseconds is a time behind "per", or "/": "minute" for one.
func milliseconds(n uint64) string {
	for _, unit := range units {
		if n == unit.of {
			return unit.each
		}
	}
	return span(n)
}

// span is how long something takes: "1h".
func span(n uint64) string {
	for _, unit := range units {
		if n%unit.of == 0 && n > 0 {
			return fmt.Sprintf("%d%s", n/unit.of, unit.word)
		}
	}
	return fmt.Sprintf("%dms", n)
}
