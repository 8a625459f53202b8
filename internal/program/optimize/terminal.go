package optimize

import (
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// terminalEarly lets packets leave a chain as soon as it is known how.
//
// Established TCP and UDP flows get rules of their own, before all that they
// need not meet. What begins a flow goes past what it cannot match. A rule that
// keeps packets out of tracking and that nothing further in its base chain
// concerns also accepts them: a hundred such rules without a verdict are a
// hundred conditions for every packet.
func terminalEarly(w *work) {
	for _, h := range w.Hooks {
		chain := w.Chain(h.Chain)
		if flowsFirst(w.Program, chain) {
			w.say("chain " + chain.Name + ": established TCP and UDP flows are accepted before everything else that they cannot match")
		}
		if pastTheRest(w.Program, chain) {
			w.say("chain " + chain.Name + ": new TCP flows go past the rules that are not about them")
		}
		if name := untrackedAside(w.Program, h.Chain); name != "" {
			w.say("chain " + chain.Name + ": TCP that bypasses tracking goes to chain " + name + ", which has only what is about it")
			chain = w.Chain(h.Chain)
		}
		if h.Default == program.Accept {
			if n := acceptAtOnce(w.Program, chain); n > 0 {
				w.say("chain " + chain.Name + ": what " + english.Plural(n, "rule") + " kept out of tracking is accepted at once")
			}
		}
	}
}

// flowsFirst gives a chain that accepts established flows the rules of
// StageFlow, and moves those up as far as nothing changes.
func flowsFirst(p *program.Program, chain *program.Chain) bool {
	f := newFacts(p)
	if at := slices.IndexFunc(chain.Rules, acceptsEstablished); at >= 0 && !slices.ContainsFunc(chain.Rules, isFlow) {
		chain.Rules = slices.Insert(chain.Rules, at, establishedFlows(chain)...)
	}
	moved := false
	first := 0 // where the next one may go at the earliest
	for i := range chain.Rules {
		if !isFlow(chain.Rules[i]) {
			continue
		}
		to := i
		for to > first && f.commute(&chain.Rules[to-1], &chain.Rules[i]) {
			to--
		}
		if to < i {
			moveRule(chain, i, to)
			moved = true
		}
		first = to + 1
	}
	return sinkLoopback(f, chain) || moved
}

// sinkLoopback puts what accepts loopback behind the established flows, where
// nothing between is about loopback.
func sinkLoopback(f *facts, chain *program.Chain) bool {
	last := -1
	for i, r := range chain.Rules {
		if isFlow(r) {
			last = i
		}
	}
	from := slices.IndexFunc(chain.Rules, func(r program.Rule) bool { return r.Stage == program.StageLoopback })
	if from < 0 || from > last {
		return false
	}
	for _, r := range chain.Rules[from+1 : last+1] {
		if !f.commute(&chain.Rules[from], &r) {
			return false
		}
	}
	loopback := chain.Rules[from]
	copy(chain.Rules[from:last], chain.Rules[from+1:last+1])
	chain.Rules[last] = loopback
	return true
}

func isFlow(r program.Rule) bool { return r.Stage == program.StageFlow }

func acceptsEstablished(r program.Rule) bool {
	return r.Stage == program.StageState && len(r.Match) == 1 && r.Match[0].Field == program.State && !r.Match[0].Not &&
		slices.Contains(r.Match[0].Names, "established") &&
		len(r.Actions) == 1 && r.Actions[0] == program.Action(program.Accept)
}

// moveRule puts rule from before rule to, which stands before it.
func moveRule(chain *program.Chain, from, to int) {
	r := chain.Rules[from]
	copy(chain.Rules[to+1:from+1], chain.Rules[to:from])
	chain.Rules[to] = r
}

// worthPassing is from how many rules on a way past them is worth its own rule.
const worthPassing = 3

// pastTheRest lets new TCP flows, and those that keep no state, go to where a
// base chain ends up before the rules that are not about them.
func pastTheRest(p *program.Program, chain *program.Chain) bool {
	end := len(chain.Rules) - 1
	if end < worthPassing || len(chain.Rules[end].Match) > 0 {
		return false
	}
	last := chain.Rules[end]
	if len(last.Actions) != 1 || !program.EffectOf(last.Actions[0]).Ends || program.EffectOf(last.Actions[0]).Goes == "" {
		return false
	}
	for _, states := range [][]string{{"new", "untracked"}, {"new"}} {
		past := last
		past.Stage, past.Comment = program.StageNeeded, "TCP that begins a flow or keeps no state"
		past.Match = []program.Condition{
			{Field: program.Protocol, Numbers: []program.NumberRange{{From: packet.TCP, To: packet.TCP}}},
			{Field: program.State, Names: states},
		}
		f := newFacts(p)
		to := end
		for to > 0 && !isFlow(chain.Rules[to-1]) && f.commute(&chain.Rules[to-1], &past) {
			to--
		}
		if end-to >= worthPassing {
			chain.Rules = slices.Insert(chain.Rules, to, past)
			return true
		}
	}
	return false
}

// untrackedAside gives TCP that bypasses tracking, where the policy has such, a
// chain with what is left for it to meet behind established TCP. It is the traffic
// that such a host has most of, and in output, where nothing is told of it by state,
// its answers would come past all that is. It gives the name of the chain; "" where it
// would save too little.
func untrackedAside(p *program.Program, base string) string {
	chain := p.Chain(base)
	first := 1 + slices.IndexFunc(chain.Rules, func(r program.Rule) bool { return isFlow(r) && asksProtocol(&r, packet.TCP) })
	end := len(chain.Rules) - 1
	if first == 0 || end < first || len(chain.Rules[end].Match) > 0 || !bypasses(p) {
		return ""
	}
	f := newFacts(p)
	aside := program.Rule{Stage: program.StageNeeded, Comment: "TCP that bypasses tracking", Match: []program.Condition{
		{Field: program.Protocol, Numbers: []program.NumberRange{{From: packet.TCP, To: packet.TCP}}},
		{Field: program.State, Names: []string{"untracked"}},
	}}
	var rest []program.Rule
	past, closed := 0, false
	for _, r := range chain.Rules[first:] {
		if f.disjoint(&aside, &r) {
			past++
			continue
		}
		if bounds(&r) {
			return "" // what it bounds is all packets together
		}
		rest = append(rest, f.within(r, &aside))
		if last := &rest[len(rest)-1]; len(last.Match) == 0 && f.terminal(last) {
			closed = true
			break
		}
	}
	if past < worthPassing || !closed {
		return ""
	}
	name := freeChain(p, base+"_untracked")
	aside.Actions = []program.Action{program.Goto{Chain: name}}
	chain.Rules = slices.Insert(slices.Clone(chain.Rules), first, aside)
	p.Chains = append(p.Chains, program.Chain{Name: name, Comment: "what " + base + " does with TCP that bypasses tracking", Rules: rest})
	return name
}

func asksProtocol(r *program.Rule, protocol uint64) bool {
	return slices.ContainsFunc(r.Match, func(c program.Condition) bool {
		return c.Field == program.Protocol && !c.Not && slices.Equal(c.Numbers, []program.NumberRange{{From: protocol, To: protocol}})
	})
}

// bypasses says that the policy keeps more out of tracking than loopback.
func bypasses(p *program.Program) bool {
	for i := range p.Chains {
		for _, r := range p.Chains[i].Rules {
			if r.Stage == program.StageTrack && r.Untracks() {
				return true
			}
		}
	}
	return false
}

// within gives a rule for packets of which another one has been asked: what that
// has told is not asked again. A protocol is, where more of its header is.
func (f *facts) within(r program.Rule, asked *program.Rule) program.Rule {
	r.Stage = ""
	told := func(c program.Condition) bool { return f.covers(&program.Rule{Match: []program.Condition{c}}, asked) }
	r.Match = slices.DeleteFunc(slices.Clone(r.Match), func(c program.Condition) bool { return c.Field == program.State && told(c) })
	if !slices.ContainsFunc(r.Match, func(c program.Condition) bool { return c.Field != program.Protocol }) {
		r.Match = slices.DeleteFunc(r.Match, told)
	}
	return r
}

// acceptAtOnce ends rules that keep packets out of tracking with accept where
// what follows in the chain does nothing more to such packets.
func acceptAtOnce(p *program.Program, chain *program.Chain) int {
	scopes := scopesOf(p, chain)
	n := 0
	for i := range chain.Rules {
		if r := &chain.Rules[i]; untracksAlone(r) && untracksForNothing(p, scopes, chain, i) {
			r.Actions = append(slices.Clone(r.Actions), program.Accept)
			n++
		}
	}
	return n
}

// untracksAlone says that a rule keeps packets out of tracking, counts them
// perhaps, and lets them go on.
func untracksAlone(r *program.Rule) bool {
	return r.Untracks() && !slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		return !e.Plain() || e.Ends
	})
}

// onlyUntracks says that a rule does nothing to a packet that is out of
// tracking already.
func onlyUntracks(p *program.Program, r *program.Rule) bool {
	return !countsElements(p, r) && !slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		return !e.Untracks && e.Decides != program.Accept
	})
}

// countsElements says that the elements of a set that a rule asks are counted.
func countsElements(p *program.Program, r *program.Rule) bool {
	return slices.ContainsFunc(r.Match, func(c program.Condition) bool {
		set := p.Set(c.Set)
		return set != nil && set.Counters
	})
}
