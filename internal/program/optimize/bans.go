package optimize

import (
	"fmt"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// banStage asks each ban where it costs least. compile writes the bans down for
// every hook, both ends of the packet, before anything else; that is a look-up
// or two for every packet of every flow.
//
// Whom a packet comes from is asked before connection tracking, which costs more than
// all rules: what is banned gets no further. Bans of the policy are asked there for what
// begins a flow, as far as a packet shows it: TCP with an ACK pays for its flags
// alone, and is asked behind established flows, where it is of none. Whoever adds to
// the sets of the policy deletes the flows that the addition hits, so no established
// flow is of a banned address. Bans by command are asked of every packet, before
// tracking too where something else is asked there: a base chain for them alone would
// cost packets while nobody is banned.
//
// Whom a packet goes to is known behind its rewriting. Of a packet that comes to the
// host that is not asked: it is an address of the host's own, which is never banned, or
// one that all of a network hear, which nobody can answer from.
//
// Bans by limits hold for what begins a flow alone, and are asked behind established
// flows.
//
// Of whom commands let in over bans, nothing of this holds: which of its packets go by a
// ban is told by ports behind rewriting and by the flow. All of them go past what is asked
// here, and are asked what compile recorded, before established flows.
func banStage(w *work) {
	hooks := []program.HookKind{program.Input, program.Forward, program.Output}
	for _, hook := range hooks {
		if asksBan(w.Base(hook, program.Filter)) < 0 {
			return // bans of one hook say nothing about the others
		}
	}
	asked := map[program.HookKind]program.Rule{}
	for _, hook := range hooks {
		chain := w.Base(hook, program.Filter)
		at := asksBan(chain)
		asked[hook] = chain.Rules[at]
		chain.Rules = slices.Delete(chain.Rules, at, at+1)
	}
	b := banning{work: w, over: addrset.Of(w.OverBans...)}
	b.read(w.Chain(program.EffectOf(asked[program.Input].Actions[0]).Calls))
	b.early()

	for _, at := range []struct {
		hook  program.HookKind
		where []program.Condition
		ends  []program.Field
	}{
		{program.Input, notLoopback(program.InInterface), []program.Field{program.Source}},
		{program.Forward, nil, []program.Field{program.Source, program.Destination}},
		{program.Output, notLoopback(program.OutInterface), []program.Field{program.Destination}},
	} {
		chain := w.Base(at.hook, program.Filter).Name
		b.askExcepted(chain, asked[at.hook], at.where, at.ends)
		b.ask(chain, program.StageBan, at.where, b.pick(true, at.ends...))
		flows := b.pick(false, at.ends...)
		again := at.hook != program.Output && b.Chain(bannedTCP) != nil
		if again {
			b.append(chain, program.Rule{
				Stage: program.StageBanFlows, Match: slices.Concat(beginsNone(), at.where),
				Actions: []program.Action{program.Jump{Chain: bannedTCP}}, Comment: "TCP that was not asked before tracking",
			})
		}
		b.ask(chain, program.StageBanFlows, at.where, flows)
		if again || len(flows) > 0 {
			b.append(chain, establishedFlows(w.Base(at.hook, program.Filter))...)
		}
	}
	if len(b.all(false, program.Source)) > 0 {
		w.say("bans are asked for what begins a flow; of what comes in by the source alone")
	}
	if len(b.all(true, program.Source)) > 0 {
		w.say("bans by command are asked of every packet, at one hook of its way")
	}
	if len(b.asked) > 0 {
		w.say("whom packets come from is asked before tracking")
	}
}

// Chains of what is asked before tracking.
const (
	rawChain  = "prerouting_raw"
	rawKnown  = "prerouting_raw_tcp"
	bannedTCP = "banned_tcp"
)

// early asks before tracking whom packets come from.
func (b *banning) early() {
	policy := slices.DeleteFunc(b.pick(false, program.Source), func(r program.Rule) bool { return !ends(&r) })
	raw := b.Base(program.Prerouting, program.Raw)
	tracks := raw != nil && slices.ContainsFunc(raw.Rules, func(r program.Rule) bool { return r.Stage == program.StageTrack })
	if len(policy) == 0 && !tracks {
		return
	}
	if raw == nil {
		b.Hooks = append(b.Hooks, program.Hook{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: rawChain})
		b.Chains = append(b.Chains, program.Chain{Name: rawChain, Comment: "before connection tracking"})
		raw = b.Base(program.Prerouting, program.Raw)
	}
	// A neighbour's packet to another host is forwarded, where no hop limit is 255.
	forward := b.spared
	defer func() { b.spared = forward }()
	b.spared = nil
	for _, r := range forward {
		r.Match = append(slices.Clone(r.Match), program.Condition{Field: program.DestinationType, Not: true, Names: []string{"unicast"}})
		b.spared = append(b.spared, r)
	}
	name, where := raw.Name, notLoopback(program.InInterface)
	b.ask(name, program.StageBan, where, b.pick(true, program.Source))
	if len(policy) > 0 {
		b.append(name, b.passTCP(name))
		b.ask(name, program.StageBanFlows, where, policy)
		b.Chains = append(b.Chains, program.Chain{Name: bannedTCP, Comment: "bans, for TCP that was not asked before tracking"})
		b.ask(bannedTCP, "", nil, policy)
	}
	b.asked = append(b.pick(true, program.Source), policy...)
}

// passTCP leads TCP that begins no flow past the bans that follow, to what else is asked
// of it before tracking.
func (b *banning) passTCP(raw string) program.Rule {
	r := program.Rule{Stage: program.StageFlow, Match: beginsNone(), Actions: []program.Action{program.Accept}, Comment: "TCP that begins no flow"}
	f := newFacts(b.Program)
	var rest []program.Rule
	for _, t := range b.Chain(raw).Rules {
		if t.Stage == program.StageTrack && !f.disjoint(&r, &t) {
			t.Stage = ""
			rest = append(rest, t)
		}
	}
	if len(rest) > 0 {
		b.Chains = append(b.Chains, program.Chain{Name: rawKnown, Comment: "what " + raw + " does with TCP that begins no flow", Rules: rest})
		r.Actions = []program.Action{program.Goto{Chain: rawKnown}}
	}
	return r
}

// beginsNone are the conditions that a packet is TCP and acknowledges another.
func beginsNone() []program.Condition {
	ack := []program.NumberRange{{From: packet.ACK, To: packet.ACK}}
	return append(slices.Clone(onlyTCP.Match), program.Condition{Field: program.TCPFlags, Mask: packet.ACK, Numbers: ack})
}

// ends says that a rule decides by itself.
func ends(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return program.EffectOf(a).Decides != "" })
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
	over   addrset.Set    // whom commands let in over bans
	rules  []program.Rule
	asked  []program.Rule // of these, what is asked before tracking
}

func (b *banning) read(chain *program.Chain) {
	for _, r := range chain.Rules {
		switch {
		case len(r.Actions) == 1 && r.Actions[0] == program.Action(program.Return):
			if r.Origin == (program.Origin{}) { // else it is of a command
				b.spared = append(b.spared, r)
			}
		case len(r.Match) == 0 && len(r.Actions) == 1 && program.EffectOf(r.Actions[0]).Calls != "":
			b.read(b.Chain(program.EffectOf(r.Actions[0]).Calls))
		default:
			b.rules = append(b.rules, r)
		}
	}
}

// askExcepted asks all bans of whom commands let in over them.
func (b *banning) askExcepted(chain string, all program.Rule, where []program.Condition, ends []program.Field) {
	if b.over.IsEmpty() {
		return
	}
	for _, end := range ends {
		b.append(chain, program.Rule{
			Stage: program.StageExcepted, Match: append([]program.Condition{{Field: end, Addresses: b.over.Ranges()}}, where...), Actions: all.Actions,
		})
	}
}

// pick gives the rules about one of the ends, of sets that commands fill or of the
// others, that are not asked yet.
func (b *banning) pick(byCommand bool, ends ...program.Field) []program.Rule {
	return slices.DeleteFunc(b.all(byCommand, ends...), func(r program.Rule) bool {
		return slices.ContainsFunc(b.asked, func(a program.Rule) bool { return slices.EqualFunc(a.Match, r.Match, same) })
	})
}

func same(a, b program.Condition) bool { return a.String() == b.String() }

// all gives them, asked or not.
func (b *banning) all(byCommand bool, ends ...program.Field) []program.Rule {
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

func (b *banning) append(chain string, rules ...program.Rule) {
	c := b.Chain(chain)
	c.Rules = append(c.Rules, rules...)
}

// ask puts rules into a chain. Neighbour discovery is never banned, and whom commands let
// in over bans is asked elsewhere, so packets that may be either go on in a chain when the
// set has the address.
func (b *banning) ask(chain string, stage program.Stage, where []program.Condition, rules []program.Rule) {
	var out []program.Rule
	for _, r := range rules {
		has4, has6 := b.families(&r)
		r.Stage = stage
		if has4 {
			out = append(out, b.ofFamily(4, r, where))
		}
		if has6 {
			out = append(out, b.ofFamily(6, r, where))
		}
	}
	b.append(chain, out...)
}

func (b *banning) ofFamily(family uint64, r program.Rule, where []program.Condition) program.Rule {
	rest := slices.Clone(r.Match)
	first := slices.IndexFunc(rest, func(c program.Condition) bool { return c.Set != "" && !c.Not })
	over, neighbours := b.over.Only6(), b.spared
	if family == 4 {
		over, neighbours = b.over.Only4(), nil
	}
	if len(neighbours) == 0 && over.IsEmpty() || first < 0 {
		r.Match = slices.Concat([]program.Condition{familyIs(family)}, r.Match, where)
		return r
	}
	asked := rest[first]
	rest = slices.Delete(rest, first, first+1)
	end := map[program.Field]string{program.Source: "from", program.Destination: "to"}[asked.Field]
	name := fmt.Sprintf("ban%d_%s_%s", family, end, asked.Set)
	if b.Chain(name) == nil {
		drop := r
		if slices.ContainsFunc(rest, func(c program.Condition) bool { return c.Set != "" }) {
			rest = append([]program.Condition{familyIs(family)}, rest...)
		}
		drop.Stage, drop.Match = "", rest
		var rules []program.Rule
		if !over.IsEmpty() {
			rules = append(rules, program.Rule{
				Match:   []program.Condition{{Field: asked.Field, Addresses: over.Ranges()}},
				Actions: []program.Action{program.Return}, Comment: "let in over bans: asked elsewhere",
			})
		}
		if len(neighbours) > 0 {
			rules = append(append(rules, b.others(drop)...), neighbours...)
		}
		b.Chains = append(b.Chains, program.Chain{
			Name: name, Comment: fmt.Sprintf("IPv%d %s %s", family, end, asked.Set), Rules: append(rules, drop),
		})
	}
	r.Match = slices.Concat([]program.Condition{familyIs(family), asked}, where)
	r.Actions = []program.Action{program.Jump{Chain: name}}
	return r
}

// others decides packets of another protocol than those that go on, before what else is
// asked of these: most of what is banned is none of them.
func (b *banning) others(drop program.Rule) []program.Rule {
	var rules []program.Rule
	for _, c := range b.spared[0].Match {
		if c.Field == program.Protocol && len(b.spared) == 1 && ends(&drop) {
			c.Not = !c.Not
			drop.Match = append([]program.Condition{c}, drop.Match...)
			rules = append(rules, drop)
		}
	}
	return rules
}

// families says of which families the sets of a rule have addresses, or may come to
// have while the rules stay.
func (b *banning) families(r *program.Rule) (four, six bool) {
	four, six = true, true
	for _, c := range r.Match {
		set := b.Set(c.Set)
		if set == nil || c.Not || set.Life == program.Dynamic || set.Life == program.Followed {
			continue
		}
		has4, has6 := set.Addresses.Has4(), set.Addresses.Has6()
		for _, e := range set.Elements {
			is4 := e.Parts[0].Addresses.From.Is4()
			has4, has6 = has4 || is4, has6 || !is4
		}
		four, six = four && has4, six && has6
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
