package optimize

import (
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/program"
)

// baseChains takes out what a base chain decides once more. A base chain costs
// every packet that its hook sees, even one without rules.
//
// What comes in by loopback has left by it: the rules of output have kept it
// out of tracking, and the kernel keeps that (nf_conntrack_in of
// net/netfilter/nf_conntrack_core.c lets be what is untracked, and nothing on
// the way of loopback forgets it). So prerouting need not say it again, where
// nothing else is rewritten for such packets.
func baseChains(w *work) {
	in, out := w.Base(program.Prerouting, program.Raw), w.Base(program.Output, program.Raw)
	if in != nil && out != nil {
		scopes := scopesOf(w.Program, in)
		again := map[int]bool{}
		for i := range in.Rules {
			again[i] = untracksForNothing(w.Program, scopes, in, i) && slices.ContainsFunc(out.Rules, func(o program.Rule) bool { return sameByLoopback(&in.Rules[i], &o) })
		}
		before, i := len(in.Rules), -1
		in.Rules = slices.DeleteFunc(in.Rules, func(program.Rule) bool { i++; return again[i] })
		if n := before - len(in.Rules); n > 0 {
			w.say("loopback is kept out of tracking where it leaves; " + english.Plural(n, "rule") + " of chain " + in.Name + " said it again")
		}
	}
	for _, h := range w.Hooks {
		if groupLoopback(w.Program, h.Chain) {
			w.say("chain " + h.Chain + " asks for loopback once")
		}
	}
	dropTails(w)
	before := len(w.Hooks)
	w.Hooks = slices.DeleteFunc(w.Hooks, func(h program.Hook) bool {
		return h.Default == program.Accept && len(w.Chain(h.Chain).Rules) == 0
	})
	if n := before - len(w.Hooks); n > 0 {
		w.say(english.Plural(n, "base chain") + " that accepted all they saw are gone")
	}
}

// untracksForNothing says that no rule behind one that keeps packets out of
// tracking does more to such packets.
func untracksForNothing(p *program.Program, scopes []*scope, chain *program.Chain, i int) bool {
	for j := i + 1; j < len(chain.Rules); j++ {
		if !onlyUntracks(p, &chain.Rules[j]) && !scopes[i].disjoint(scopes[j]) {
			return false
		}
	}
	return true
}

func scopesOf(p *program.Program, chain *program.Chain) []*scope {
	f := newFacts(p)
	out := make([]*scope, len(chain.Rules))
	for i := range chain.Rules {
		out[i] = f.scope(&chain.Rules[i])
	}
	return out
}

// sameByLoopback says whether one rule keeps out of tracking, of what comes in
// by loopback, just what the other does of what leaves by it.
func sameByLoopback(in, out *program.Rule) bool {
	lo := []string{"lo"}
	if !slices.Equal(in.Actions, out.Actions) || len(in.Match) != len(out.Match) || !untracksAndAccepts(in) {
		return false
	}
	loopback := false
	for i := range in.Match {
		a, b := in.Match[i], out.Match[i]
		if a.Field == program.InInterface && b.Field == program.OutInterface && slices.Equal(a.Names, lo) && slices.Equal(b.Names, lo) && !a.Not && !b.Not {
			loopback = true
			continue
		}
		if a.String() != b.String() || a.Field == program.InInterface || a.Field == program.OutInterface {
			return false
		}
	}
	return loopback
}

func untracksAndAccepts(r *program.Rule) bool {
	return len(r.Actions) == 2 && r.Actions[0] == program.Action(program.NoTrack{}) && r.Actions[1] == program.Action(program.Accept)
}

// groupLoopback asks once whether a packet goes by loopback where rules that
// stand together ask it each.
func groupLoopback(p *program.Program, name string) bool {
	chain := p.Chain(name)
	asks := func(i int) int {
		return slices.IndexFunc(chain.Rules[i].Match, func(c program.Condition) bool {
			return (c.Field == program.InInterface || c.Field == program.OutInterface) && !c.Not && slices.Equal(c.Names, []string{"lo"})
		})
	}
	first := 0
	for first < len(chain.Rules) && asks(first) < 0 {
		first++
	}
	end := first
	for end < len(chain.Rules) && asks(end) >= 0 {
		end++
	}
	if end-first < 2 {
		return false
	}
	inner := program.Chain{Name: freeChain(p, name+"_loopback"), Comment: "what " + name + " does with loopback"}
	condition := chain.Rules[first].Match[asks(first)]
	f := newFacts(p)
	for i := first; i < end; i++ {
		r := chain.Rules[i]
		at := asks(i)
		if r.Match[at].Field != condition.Field || f.comesBack(&r) {
			return false
		}
		r.Match = slices.Delete(slices.Clone(r.Match), at, at+1)
		r.Stage = ""
		inner.Rules = append(inner.Rules, r)
	}
	jump := program.Rule{
		Stage: chain.Rules[first].Stage, Match: []program.Condition{condition},
		Actions: []program.Action{program.Jump{Chain: inner.Name}}, Comment: "loopback",
	}
	chain.Rules = slices.Replace(slices.Clone(chain.Rules), first, end, jump)
	p.Chains = append(p.Chains, inner)
	return true
}

// dropTails takes out the last rules of a base chain that do no more than its
// default does.
func dropTails(w *work) {
	for _, h := range w.Hooks {
		chain := w.Chain(h.Chain)
		n := len(chain.Rules)
		for n > 0 && onlyDefault(w.Program, &chain.Rules[n-1], h.Default) {
			n--
		}
		if n < len(chain.Rules) {
			w.say(english.Plural(len(chain.Rules)-n, "rule") + " at the end of chain " + chain.Name + " did what its default does")
			chain.Rules = slices.Delete(chain.Rules, n, len(chain.Rules))
		}
	}
}

func onlyDefault(p *program.Program, r *program.Rule, verdict program.Verdict) bool {
	return len(r.Actions) == 1 && r.Actions[0] == program.Action(verdict) && !countsElements(p, r.Match)
}
