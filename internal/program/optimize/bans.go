package optimize

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// banStage asks each ban where it costs least. compile writes the bans down for
// every hook, both ends of the packet, before anything else; that is a look-up
// or two for every packet of every flow.
//
// So bans are asked where the other rules of a hook are, which costs no base
// chain. Bans of the policy are asked for what begins a flow, and behind
// established flows: whoever adds to their sets deletes the flows that the
// addition hits, so no established flow is of a banned address. Bans by limits
// hold for what begins a flow alone, so they are asked there too. Bans by command
// are asked of every packet.
//
// Of a packet that comes to the host only the source is asked. Its destination
// is an address of the host's own, which is never banned, or one that all of a
// network hear, which nobody can answer from.
func banStage(w *work) {
	hooks := []program.HookKind{program.Input, program.Forward, program.Output}
	for _, hook := range hooks {
		if asksBan(w.Base(hook, program.Filter)) < 0 {
			return // bans of one hook say nothing of the others
		}
	}
	var in program.Rule
	for _, hook := range hooks {
		chain := w.Base(hook, program.Filter)
		at := asksBan(chain)
		if hook == program.Input {
			in = chain.Rules[at]
		}
		chain.Rules = slices.Delete(chain.Rules, at, at+1)
	}
	b := banning{work: w}
	b.read(w.Chain(program.EffectOf(in.Actions[0]).Calls))

	for _, at := range []struct {
		hook  program.HookKind
		where []program.Condition
		ends  []program.Field
	}{
		{program.Input, notLoopback(program.InInterface), []program.Field{program.Source}},
		{program.Forward, nil, []program.Field{program.Source, program.Destination}},
		{program.Output, notLoopback(program.OutInterface), []program.Field{program.Destination}},
	} {
		b.ask(at.hook, program.StageBan, at.where, b.pick(true, at.ends...))
		if flows := b.pick(false, at.ends...); len(flows) > 0 {
			b.ask(at.hook, program.StageBanFlows, at.where, flows)
			chain := b.Base(at.hook, program.Filter)
			chain.Rules = append(chain.Rules, establishedFlows(chain)...)
		}
	}
	if len(b.pick(false, program.Source)) > 0 {
		w.say("bans are asked for what begins a flow, behind established flows; of what comes in by the source alone")
	}
	if len(b.pick(true, program.Source)) > 0 {
		w.say("bans by command are asked of every packet, at one hook of its way")
	}
}

func notLoopback(device program.Field) []program.Condition {
	return []program.Condition{{Field: device, Not: true, Names: []string{"lo"}}}
}

// asksBan is the place of the rule of a filter chain that asks the bans; -1 where
// there is none.
func asksBan(chain *program.Chain) int {
	if chain == nil {
		return -1
	}
	return slices.IndexFunc(chain.Rules, func(r program.Rule) bool {
		return r.Stage == program.StageBan && len(r.Match) == 0 && len(r.Actions) == 1 && program.EffectOf(r.Actions[0]).Calls != ""
	})
}

// banning is the bans of a program, on their way to their hooks.
type banning struct {
	*work
	spared []program.Rule // what returns: never banned
	rules  []program.Rule
}

func (b *banning) read(chain *program.Chain) {
	for _, r := range chain.Rules {
		if len(r.Actions) == 1 && r.Actions[0] == program.Action(program.Return) {
			b.spared = append(b.spared, r)
		} else {
			b.rules = append(b.rules, r)
		}
	}
}

// pick gives the rules about one of the ends, of sets that commands fill or of the
// others.
func (b *banning) pick(byCommand bool, ends ...program.Field) []program.Rule {
	var out []program.Rule
	for _, r := range b.rules {
		about := slices.ContainsFunc(r.Match, func(c program.Condition) bool { return slices.Contains(ends, c.Field) })
		if about && b.byCommand(&r) == byCommand {
			out = append(out, r)
		}
	}
	return out
}

func (b *banning) byCommand(r *program.Rule) bool {
	return slices.ContainsFunc(r.Match, func(c program.Condition) bool {
		set := b.Set(c.Set)
		return set != nil && set.Commands
	})
}

// ask puts rules into the chain of a hook. Neighbour discovery is never banned,
// so those of IPv6 go on in a chain when the set has the address.
func (b *banning) ask(hook program.HookKind, stage program.Stage, where []program.Condition, rules []program.Rule) {
	var out []program.Rule
	for _, r := range rules {
		has4, has6 := b.families(&r)
		r.Stage = stage
		if has4 {
			of4 := r
			of4.Match = slices.Concat([]program.Condition{familyIs(4)}, r.Match, where)
			out = append(out, of4)
		}
		if has6 {
			out = append(out, b.ofIPv6(r, where))
		}
	}
	chain := b.Base(hook, program.Filter)
	chain.Rules = append(chain.Rules, out...)
}

func (b *banning) ofIPv6(r program.Rule, where []program.Condition) program.Rule {
	rest := slices.Clone(r.Match)
	first := slices.IndexFunc(rest, func(c program.Condition) bool { return c.Set != "" && !c.Not })
	if len(b.spared) == 0 || first < 0 {
		r.Match = slices.Concat([]program.Condition{familyIs(6)}, r.Match, where)
		return r
	}
	asked := rest[first]
	rest = slices.Delete(rest, first, first+1)
	end := map[program.Field]string{program.Source: "from", program.Destination: "to"}[asked.Field]
	name := "ban6_" + end + "_" + asked.Set
	if b.Chain(name) == nil {
		drop := r
		drop.Stage, drop.Match = "", rest
		b.Chains = append(b.Chains, program.Chain{
			Name: name, Comment: "IPv6 " + end + " " + asked.Set, Rules: append(slices.Clone(b.spared), drop),
		})
	}
	r.Match = slices.Concat([]program.Condition{familyIs(6), asked}, where)
	r.Actions = []program.Action{program.Jump{Chain: name}}
	return r
}

// families says of which families the sets of a rule have addresses, or may
// come to have.
func (b *banning) families(r *program.Rule) (four, six bool) {
	four, six = true, true
	for _, c := range r.Match {
		set := b.Set(c.Set)
		if set == nil || c.Not || set.Life != program.Static || len(set.Elements) > 0 {
			continue
		}
		four, six = four && set.Addresses.Has4(), six && set.Addresses.Has6()
	}
	return four, six
}

func familyIs(n uint64) program.Condition {
	return program.Condition{Field: program.Family, Numbers: []program.NumberRange{{From: n, To: n}}}
}

// establishedFlows accept established TCP and UDP. They are two rules, since
// asking for one protocol is a comparison and asking for one of two a look-up,
// which takes four times as long. Where handshakes at some ports are counted, flows
// of other ports are accepted before that, so that comparing the port is all they pay.
func establishedFlows(chain *program.Chain) []program.Rule {
	var out []program.Rule
	for _, protocol := range []uint64{packet.TCP, packet.UDP} {
		r := program.Rule{
			Stage: program.StageFlow,
			Match: []program.Condition{
				{Field: program.State, Names: []string{"established"}},
				{Field: program.Protocol, Numbers: []program.NumberRange{{From: protocol, To: protocol}}},
			},
			Actions: []program.Action{program.Accept},
			Comment: "more of flows that were allowed",
		}
		if protocol == packet.TCP {
			r.Match = append(r.Match, otherPorts(chain)...)
		}
		out = append(out, r)
	}
	return out
}

// otherPorts are the ports at which no handshakes are counted. Two comparisons are
// cheaper than a look-up, and as many as one for each of three ports take as long.
func otherPorts(chain *program.Chain) []program.Condition {
	for _, r := range chain.Rules {
		if r.Stage != program.StageProof {
			continue
		}
		for _, c := range r.Match {
			if c.Field != program.Port && c.Field != program.SourcePort {
				continue
			}
			c.Not = !c.Not
			first, last := c.Numbers[0].From, c.Numbers[len(c.Numbers)-1].To
			one := func(n uint64) program.Condition {
				c.Numbers = []program.NumberRange{{From: n, To: n}}
				return c
			}
			if c.Not && holding(c.Numbers) == 2 {
				return []program.Condition{one(first), one(last)}
			}
			return []program.Condition{c}
		}
	}
	return nil
}

// holding is how many numbers ranges have that do not meet.
func holding(ranges []program.NumberRange) (n uint64) {
	for _, r := range ranges {
		n += r.To - r.From + 1
	}
	return n
}
