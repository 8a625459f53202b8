package reach

import (
	"fmt"
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/bdd"
	"sluice/internal/program"
)

// actions runs the actions of a rule. It gives what goes on behind the rule, and
// what returned from the chain.
func (x *execution) actions(r *program.Rule, b branch, depth int) (through, returned []branch) {
	live := []branch{b}
	for _, a := range r.Actions {
		var next []branch
		for _, b := range live {
			on, closed, back := x.action(r, a, b, depth)
			next, through, returned = append(next, on...), append(through, closed...), append(returned, back...)
		}
		if live = x.merge(next); len(live) == 0 {
			break
		}
	}
	return append(through, live...), returned
}

// action runs one. It gives what goes on to the next action, what a gate sends on
// to the next rule, and what returned.
func (x *execution) action(r *program.Rule, a program.Action, b branch, depth int) (on, closed, returned []branch) {
	switch a := a.(type) {
	case program.Verdict:
		if a == program.Return {
			return nil, nil, []branch{b}
		}
		x.decide(r, a, b)
		return nil, nil, nil
	case program.Jump:
		return x.enter(a.Chain, b, depth), nil, nil
	case program.Goto:
		return nil, nil, x.enter(a.Chain, b, depth)
	case program.VerdictMap:
		return x.verdictMap(r, a, b, depth)
	case program.NoTrack:
		return x.noTrack(b), nil, nil
	case program.Limit:
		open, shut := x.gate(a, b)
		if a.Ban != "" {
			shut, returned = x.ban(r, a, shut, depth)
		}
		return open, shut, returned
	case program.ConnectionLimit:
		open, shut := x.gate(a, b)
		return open, shut, nil
	case program.SetAdd:
		if a.Once {
			open, shut := x.gate(a, b)
			return open, shut, nil
		}
	}
	if fits, known := x.fits(a, b); known {
		rest := x.u.Minus(b.region, fits)
		if rest != bdd.None {
			closed = []branch{{b.flow, rest}} // the kernel finds nothing to translate to, and asks the next rule
		}
		if b.region = x.u.And(b.region, fits); b.region == bdd.None {
			return nil, closed, nil
		}
	}
	if rewritten, ends, is := x.rewrite(a, b); is {
		if !ends {
			return []branch{rewritten}, closed, nil
		}
		x.accepted = append(x.accepted, rewritten)
		return nil, closed, nil
	}
	return []branch{x.effectsOf(a, b)}, nil, nil
}

// effectTexts are program.ActionText and what else tells an action from another.
func effectTexts(a program.Action) []string {
	texts := []string{program.ActionText(a)}
	table, full := "", ""
	switch a := a.(type) {
	case program.SetAdd:
		if len(a.Fields) == 0 {
			texts[0] += fmt.Sprintf(" for %d ms", a.Timeout)
		}
	case program.Limit:
		table, full = a.Table, a.FullCounter
	case program.ConnectionLimit:
		table, full = a.Table, a.FullCounter
	}
	if full != "" {
		texts = append(texts, "count "+full+" where "+table+" is full")
	}
	return texts
}

func (x *execution) effectsOf(a program.Action, b branch) branch {
	for _, text := range effectTexts(a) {
		b = x.effect(b, text)
	}
	return b
}

// enter gives what comes back from a chain.
func (x *execution) enter(chain string, b branch, depth int) []branch {
	c := x.program.Chain(chain)
	if c == nil {
		return []branch{b}
	}
	origin := x.origin
	left := x.chain(c, b, depth+1)
	x.origin = origin
	return left
}

// decide ends a base chain.
func (x *execution) decide(r *program.Rule, v program.Verdict, b branch) {
	by := decider{rule: r, origin: r.Origin, hook: x.hook.Kind, chain: x.hook.Chain}
	if by.origin == (program.Origin{}) {
		by.origin = x.origin
	}
	if v != program.Accept {
		x.end(b, v, by)
		return
	}
	if x.deciders && x.hook.Phase == program.Filter {
		b.flow.decider = by
	}
	x.accepted = append(x.accepted, b)
}

// gate parts what a limit lets through from what it does not. Both have asked it.
func (x *execution) gate(a program.Action, b branch) (open, shut []branch) {
	through := x.u.flag(gateField(a))
	asked := x.effectsOf(a, b)
	if r := x.u.And(asked.region, through); r != bdd.None {
		open = []branch{{asked.flow, r}}
	}
	if r := x.u.Minus(asked.region, through); r != bdd.None {
		shut = []branch{{asked.flow, r}}
	}
	return open, shut
}

// ban drops what is over a limit that bans, or leads it to the limit's chain for
// such, and gives what is never banned.
func (x *execution) ban(r *program.Rule, a program.Limit, shut []branch, depth int) (spared, returned []branch) {
	for _, b := range shut {
		never := bdd.None
		if set := x.program.Set(a.NeverBan); set != nil {
			never = x.view(b.flow.change).inSet(set, []program.Field{program.Source})
		}
		if r := x.u.And(b.region, never); r != bdd.None {
			spared = append(spared, branch{b.flow, r})
		}
		if rest := x.u.Minus(b.region, never); rest != bdd.None {
			banned := x.effect(branch{b.flow, rest}, fmt.Sprintf("ban in %s for %d ms", a.Ban, a.BanTimeout))
			if a.Over != "" {
				returned = append(returned, x.enter(a.Over, banned, depth)...)
				continue
			}
			x.end(banned, program.Drop, decider{rule: r, origin: r.Origin, hook: x.hook.Kind, chain: x.hook.Chain})
		}
	}
	return spared, returned
}

// verdictMap parts packets by the element that their key is.
func (x *execution) verdictMap(r *program.Rule, a program.VerdictMap, b branch, depth int) (on, closed, returned []branch) {
	set := x.program.Set(a.Set)
	if set == nil {
		return []branch{b}, nil, nil
	}
	u, v := x.u, x.view(b.flow.change)
	present := bdd.Every
	for _, f := range a.Key {
		present = u.And(present, v.present(f))
		if v.nameless(f) {
			present = bdd.None
		}
	}
	origin := x.origin
	met := u.And(b.region, present)
	var found []Region
	for _, which := range group(set, func(e *program.Element) any {
		if x.deciders {
			return [3]any{program.ActionText(e.Verdict), e.Counter, e.Origin}
		}
		return [2]any{program.ActionText(e.Verdict), e.Counter}
	}) {
		part := u.And(met, v.elements(set, a.Key, which)) // elements are disjoint
		if part == bdd.None {
			continue
		}
		found = append(found, part)
		first := &set.Elements[which[0]]
		fit := branch{b.flow, part}
		if first.Counter != "" {
			fit = x.effect(fit, program.ActionText(program.Count{Counter: first.Counter}))
		}
		x.origin = first.Origin
		o, c, back := x.action(r, first.Verdict, fit, depth)
		on, closed, returned = append(on, o...), append(closed, c...), append(returned, back...)
	}
	rest := u.Minus(b.region, v.either(found))
	x.origin = origin
	if rest != bdd.None {
		on = append(on, branch{b.flow, rest})
	}
	return on, closed, returned
}

// noTrack keeps packets out of tracking that are not out of it already. Behind
// connection tracking it does nothing (nft_notrack_eval).
func (x *execution) noTrack(b branch) (out []branch) {
	if !x.raw {
		return []branch{b}
	}
	already := x.u.named(program.State, "untracked")
	if r := x.u.And(b.region, already); r != bdd.None {
		out = append(out, branch{b.flow, r})
	}
	if r := x.u.Minus(b.region, already); r != bdd.None {
		out = append(out, x.changed(branch{b.flow, r}, func(c *change) { c.untracked = true }))
	}
	return out
}

// fits is the packets that a translation to an address is for; false where it is
// for all.
func (x *execution) fits(a program.Action, b branch) (r Region, known bool) {
	var of netip.Addr
	switch a := a.(type) {
	case program.DNAT:
		of = a.To
	case program.SNAT:
		of = a.To
	case program.DNATPrefix:
		return x.inPrefix(program.Destination, a.From, b), true
	case program.SNATPrefix:
		return x.inPrefix(program.Source, a.From, b), true
	default:
		return r, false
	}
	six := x.u.sixth(program.Source)
	if of.Is4() {
		return x.u.Minus(b.region, six), true
	}
	return six, true
}

func (x *execution) inPrefix(f program.Field, p netip.Prefix, b branch) Region {
	inside := addrset.FromPrefixes(p)
	return x.view(b.flow.change).has(f, values{addresses: &inside})
}

// rewrite does what an action does to packets; ends says that the base chain is
// over, as address translation ends its chain, is that the action rewrites.
func (x *execution) rewrite(a program.Action, b branch) (out branch, ends, is bool) {
	source := func(s step) func(*change) {
		s.before = x.raw
		return func(c *change) { c.source = append(c.source, s) }
	}
	destination := func(s step, port uint16) func(*change) {
		s.before = x.raw
		return func(c *change) {
			c.destination = append(c.destination, s)
			if port != 0 {
				c.port = &port
			}
		}
	}
	natted := func(edit func(*change)) func(*change) {
		return func(c *change) {
			edit(c)
			switch a.(type) {
			case program.SNAT, program.SNATPrefix, program.Masquerade:
				c.snat = true
			default:
				c.dnat = true
			}
		}
	}
	switch a := a.(type) {
	case program.SetMark:
		return x.changed(b, func(c *change) { c.mark = append(c.mark, a) }), false, true
	case program.MapSource:
		return x.changed(b, source(step{from: a.From, as: a.To})), false, true
	case program.MapDestination:
		return x.changed(b, destination(step{from: a.From, as: a.To}, 0)), false, true
	case program.DNAT:
		return x.changed(b, natted(destination(step{to: a.To}, a.Port))), true, true
	case program.DNATPrefix:
		return x.changed(b, natted(destination(step{from: a.From, as: a.To}, 0))), true, true
	case program.Redirect:
		return x.changed(b, natted(destination(step{own: true}, a.Port))), true, true
	case program.SNAT:
		return x.changed(b, natted(source(step{to: a.To}))), true, true
	case program.SNATPrefix:
		return x.changed(b, natted(source(step{from: a.From, as: a.To}))), true, true
	case program.Masquerade:
		return x.changed(b, natted(source(step{own: true}))), true, true
	}
	return b, false, false
}
