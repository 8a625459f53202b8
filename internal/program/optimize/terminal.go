package optimize

import (
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/program"
)

// terminalEarly lets packets leave a chain as soon as it is known how.
//
// Established TCP and UDP flows get rules of their own, before all that they
// need not meet. What else is no TCP goes aside behind them. A rule that
// keeps packets out of tracking and that nothing further in its base chain
// concerns also accepts them: a hundred such rules without a verdict are a
// hundred conditions for every packet.
func terminalEarly(w *work) {
	for _, h := range w.Hooks {
		chain := w.Chain(h.Chain)
		if flowsFirst(w.Program, chain) {
			w.say("chain " + chain.Name + ": established TCP and UDP flows are accepted before everything else that they cannot match")
		}
		others := othersAside(w.Program, h.Chain)
		if others != "" {
			w.say("chain " + h.Chain + ": all but TCP goes to chain " + others + " behind established flows, and neither meets rules that are not about it")
		}
		if name := untrackedAside(w.Program, h.Chain); name != "" {
			w.say("chain " + h.Chain + ": TCP that bypasses tracking goes to chain " + name + ", which has only what is about it")
		}
		if others != "" {
			joinLast(w.Program, h.Chain)
		}
		if name := offloadedAside(w.Program, h.Chain); name != "" {
			w.say("chain " + h.Chain + ": established flows are asked for once, and handed over and accepted in chain " + name)
		}
		if h.Default != program.Accept {
			continue
		}
		for _, name := range append([]string{h.Chain}, past(w.Chain(h.Chain))...) {
			if n := acceptAtOnce(w.Program, w.Chain(name)); n > 0 {
				w.say("chain " + name + ": what " + english.Plural(n, "rule") + " kept out of tracking is accepted at once")
			}
		}
	}
}

// past are the chains that flows end in which a base chain lets go past its bans.
func past(chain *program.Chain) (out []string) {
	for _, r := range chain.Rules {
		if to := program.EffectOf(r.Actions[len(r.Actions)-1]).Goes; isFlow(r) && to != "" {
			out = append(out, to)
		}
	}
	return out
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

// offloadedAside gives what hands established flows over, and what accepts them, a
// chain: most of their packets take the fast path and meet neither, and what begins a
// flow is asked once. It gives the name of the chain; "" where nothing is handed over.
func offloadedAside(p *program.Program, base string) string {
	chain := p.Chain(base)
	first := slices.IndexFunc(chain.Rules, func(r program.Rule) bool { return r.Stage == program.StageOffload })
	if first < 0 {
		return ""
	}
	established := program.Condition{Field: program.State, Names: []string{"established"}}
	var rules []program.Rule
	for _, r := range chain.Rules[first:] {
		at := slices.IndexFunc(r.Match, func(c program.Condition) bool { return c.String() == established.String() })
		if at < 0 || r.Stage != program.StageOffload && !isFlow(r) {
			break
		}
		r.Match, r.Stage = slices.Delete(slices.Clone(r.Match), at, at+1), ""
		rules = append(rules, r)
	}
	if len(rules) < 2 {
		return ""
	}
	inner := program.Chain{Name: freeChain(p, base+"_flows"), Comment: "established flows of " + base, Rules: rules}
	chain.Rules = slices.Replace(slices.Clone(chain.Rules), first, first+len(rules), program.Rule{
		Stage: program.StageFlow, Match: []program.Condition{established},
		Actions: []program.Action{program.Jump{Chain: inner.Name}}, Comment: "established flows",
	})
	p.Chains = append(p.Chains, inner)
	return inner.Name
}

func isFlow(r program.Rule) bool { return r.Stage == program.StageFlow }

func acceptsEstablished(r program.Rule) bool {
	return r.Stage == program.StageState && len(r.Match) == 1 && r.Match[0].Field == program.State && !r.Match[0].Not &&
		slices.Contains(r.Match[0].Names, "established") &&
		len(r.Actions) == 1 && r.Actions[0] == program.Action(program.Accept)
}

// moveRule puts rule from before rule to, which is before it.
func moveRule(chain *program.Chain, from, to int) {
	r := chain.Rules[from]
	copy(chain.Rules[to+1:from+1], chain.Rules[to:from])
	chain.Rules[to] = r
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
	return !countsElements(p, r.Match) && !slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		if to := p.Chain(e.Goes); to != nil {
			return slices.ContainsFunc(to.Rules, func(r program.Rule) bool { return !onlyUntracks(p, &r) })
		}
		return !e.Untracks && e.Decides != program.Accept
	})
}

// countsElements says that conditions ask a set whose elements are counted.
func countsElements(p *program.Program, match []program.Condition) bool {
	return slices.ContainsFunc(match, func(c program.Condition) bool {
		set := p.Set(c.Set)
		return set != nil && set.Counters
	})
}
