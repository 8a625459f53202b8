package reach

import (
	"fmt"
	"net/netip"
	"slices"

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
	does := program.EffectOf(a)
	switch {
	case does.Decides == program.Return:
		return nil, nil, []branch{b}
	case does.Decides != "":
		x.decide(r, does.Decides, b)
		return nil, nil, nil
	case does.Calls != "":
		return x.enter(does.Calls, b, depth), nil, nil
	case does.Gates:
		open, shut := x.gate(a, b)
		if l, is := a.(program.Limit); is && l.Ban != "" {
			shut, returned = x.ban(r, l, shut, depth)
		}
		return open, shut, returned
	case does.Goes != "":
		return nil, nil, x.enter(does.Goes, b, depth)
	case does.Map != "":
		return x.verdictMap(r, does, b, depth)
	case does.Untracks:
		return x.noTrack(b), nil, nil
	case does.Marks.Mask != 0:
		return []branch{x.changed(b, func(c *change) { c.mark = append(c.mark, does.Marks) })}, nil, nil
	case does.Rewrites.Field == "":
		return []branch{x.effectsOf(a, b)}, nil, nil
	case !does.Ends:
		return []branch{x.rewrite(does, b)}, nil, nil
	}
	fits := x.fits(does.Rewrites, b)
	if rest := x.u.Minus(b.region, fits); rest != bdd.None {
		closed = []branch{{b.flow, rest}} // the kernel finds nothing to translate to, and asks the next rule
	}
	b.region = x.u.And(b.region, fits)
	if there := x.goesThere(r, does.Rewrites, b); there != bdd.None {
		x.accepted = append(x.accepted, branch{b.flow, there})
		b.region = x.u.Minus(b.region, there)
	}
	if b.region != bdd.None {
		x.accepted = append(x.accepted, x.rewrite(does, b))
	}
	return nil, closed, nil
}

// effectTexts are program.ActionText and what else tells an action from another.
func effectTexts(a program.Action) []string {
	texts := []string{program.ActionText(a)}
	if add, is := a.(program.SetAdd); is && len(add.Fields) == 0 {
		texts[0] += fmt.Sprintf(" for %d ms", add.Timeout)
	}
	if e := program.EffectOf(a); e.CountsFull != "" && len(e.Fills) > 0 {
		texts = append(texts, "count "+e.CountsFull+" where "+e.Fills[0]+" is full")
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
func (x *execution) verdictMap(r *program.Rule, does program.Effect, b branch, depth int) (on, closed, returned []branch) {
	set := x.program.Set(does.Map)
	if set == nil {
		return []branch{b}, nil, nil
	}
	u, v := x.u, x.view(b.flow.change)
	present := bdd.Every
	for _, f := range does.Reads {
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
		part := u.And(met, v.elements(set, does.Reads, which)) // elements are disjoint
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
// connection tracking it does nothing (nft_notrack_eval). What another tool has
// rewritten was tracked for it: where it went then, nobody kept it out.
func (x *execution) noTrack(b branch) (out []branch) {
	if !x.raw {
		return []branch{b}
	}
	already := x.u.Or(x.u.named(program.State, "untracked"), x.u.rewritten())
	if r := x.u.And(b.region, already); r != bdd.None {
		out = append(out, branch{b.flow, r})
	}
	if r := x.u.Minus(b.region, already); r != bdd.None {
		out = append(out, x.changed(branch{b.flow, r}, func(c *change) { c.untracked = true }))
	}
	return out
}

// fits is the packets that a translation is for.
func (x *execution) fits(w program.Rewriting, b branch) Region {
	six := x.u.sixth(program.Source)
	switch {
	case w.From.IsValid():
		return x.inPrefix(w.Field, w.From, b)
	case w.Family() == 4:
		return x.u.Minus(b.region, six)
	case w.Family() == 6:
		return six
	}
	return bdd.Every
}

// goesThere is the packets that a translation of a rule leads where they go already:
// they keep their destination, and the status of a flow that is not rewritten
// (nf_nat_setup_info of net/netfilter/nf_nat_core.c).
func (x *execution) goesThere(r *program.Rule, w program.Rewriting, b branch) Region {
	if !mayGoThere(r, w) {
		return bdd.None
	}
	to, v := addrset.Of(addrset.Range{From: w.To, To: w.To}), x.view(b.flow.change)
	there := x.u.And(b.region, v.has(program.Destination, values{addresses: &to}))
	if w.Port != 0 {
		there = x.u.And(there, v.has(program.Port, values{numbers: []program.NumberRange{onePort(w.Port)}}))
	}
	return there
}

// mayGoThere says whether a rule may translate a packet to the address and port that it
// goes to already.
func mayGoThere(r *program.Rule, w program.Rewriting) bool {
	if w.Field != program.Destination || w.Own || !w.To.IsValid() {
		return false
	}
	return !slices.ContainsFunc(r.Match, func(c program.Condition) bool {
		switch {
		case c.Not || c.Set != "":
			return false
		case c.Field == program.Port && w.Port != 0:
			return !slices.ContainsFunc(c.Numbers, func(r program.NumberRange) bool { return within(r, uint64(w.Port)) })
		}
		return c.Field == program.Destination && !addrset.Of(c.Addresses...).Contains(w.To)
	})
}

func onePort(port uint16) program.NumberRange {
	return program.NumberRange{From: uint64(port), To: uint64(port)}
}

func (x *execution) inPrefix(f program.Field, p netip.Prefix, b branch) Region {
	inside := addrset.FromPrefixes(p)
	return x.view(b.flow.change).has(f, values{addresses: &inside})
}

// rewrite changes an address of packets.
func (x *execution) rewrite(does program.Effect, b branch) branch {
	w := does.Rewrites
	s := step{to: w.To, own: w.Own, from: w.From, as: w.As, before: x.raw}
	return x.changed(b, func(c *change) {
		if w.Field == program.Source {
			c.source, c.snat = append(c.source, s), c.snat || does.Ends
			return
		}
		c.destination, c.dnat = append(c.destination, s), c.dnat || does.Ends
		if w.Port != 0 {
			c.port = &w.Port
		}
	})
}
