package optimize

import (
	"fmt"
	"slices"

	"sluice/internal/program"
)

const (
	// largeSet is from how many elements a set costs more to ask than the other
	// conditions of a rule together.
	largeSet = 64
	// A backend may lay out a set of so many ranges in chains, for each thing that
	// happens to a packet.
	laidOutSet = 1024
	// ahead is how far the pass looks for rules that may come nearer.
	ahead = 64
	// A chain may take factorChecks comparisons of rules and factorChecksPerRule
	// for each of its rules.
	factorChecks        = 100_000
	factorChecksPerRule = 100
)

// factor lets rules that ask for the same large set ask for it once: one rule
// asks and leads to a chain with what is left of them. It does so only where one
// of the rules matches whatever of the set any of the others does, so that no
// packet is asked that was not asked before.
func factor(w *work) {
	f := w.facts()
	for i := range w.Chains {
		f.chainEffect(w.Chains[i].Name)
	}
	for i := range len(w.Chains) {
		rules := f.ordered(&w.Chains[i])
		most := *f.compared + factorChecks + factorChecksPerRule*len(w.Chains[i].Rules)
		for at := 0; at < len(w.Chains[i].Rules) && *f.compared < most; at++ {
			r := &w.Chains[i].Rules[at]
			for _, c := range r.Match {
				if f.large(&c) && rules.factorOut(w, i, at, c) {
					rules = f.ordered(&w.Chains[i])
					break
				}
			}
		}
		for at := 0; at < len(w.Chains[i].Rules) && *f.compared < most; at++ {
			for _, c := range w.Chains[i].Rules[at].Match {
				if f.large(&c) && f.sets[c.Set].Len() >= laidOutSet && rules.lead(w, i, at, c) {
					rules = f.ordered(&w.Chains[i])
					break
				}
			}
		}
	}
}

// large says whether a condition costs much, and nothing depends on how often
// it is asked.
func (f *facts) large(c *program.Condition) bool {
	set := f.sets[c.Set]
	return set != nil && set.Life != program.Dynamic && set.Life != program.Followed && !set.Counters && set.Len() >= largeSet
}

// factorOut factors the condition out of the rule at a place of a chain and of
// those behind it that have it too.
func (o *ordered) factorOut(w *work, chain, at int, c program.Condition) bool {
	rules := w.Chains[chain].Rules
	text := conditionText(&c)
	reads := effect{reads: map[string]bool{}}
	o.reading(&reads, &c)
	with := []int{}
	var between []int
	for i := at; i < len(rules) && i < at+ahead; i++ {
		r := &rules[i]
		fits := r.Stage == rules[at].Stage && o.scopeAt(i).texts[text] &&
			!o.leaves(r) && apart(o.effectAt(i).writes, reads.reads) &&
			!slices.ContainsFunc(between, func(b int) bool { return !o.commuteAt(b, i) })
		if fits {
			with = append(with, i)
		} else {
			between = append(between, i)
		}
	}
	if len(with) < 2 {
		return false
	}
	widest, members := o.widest(rules, with, text)
	if len(members) < 2 || members[0] != at {
		return false
	}
	name := o.inner(w, chain, c, members, "the rules that ask for set %s, which is asked once")
	outer := program.Rule{
		Stage: rules[at].Stage, Match: append(without(rules[widest].Match, text), c), Actions: []program.Action{program.Jump{Chain: name}},
		Comment: fmt.Sprintf("%d rules ask for set %s", len(members), c.Set),
	}
	var out []program.Rule
	for i, r := range rules {
		switch {
		case i == at:
			out = append(out, outer)
		case !slices.Contains(members, i):
			out = append(out, r)
		}
	}
	w.say(fmt.Sprintf("chain %s: %d rules ask for set %s once", w.Chains[chain].Name, len(members), c.Set))
	w.Chains[chain].Rules = out
	return true
}

// inner makes the chain of what is left of some rules without a condition.
func (o *ordered) inner(w *work, chain int, c program.Condition, members []int, comment string) string {
	name := freeChain(w.Program, w.Chains[chain].Name+"_"+c.Set)
	inner := program.Chain{Name: name, Comment: fmt.Sprintf(comment, c.Set)}
	for _, i := range members {
		r := w.Chains[chain].Rules[i]
		r.Stage = ""
		r.Match = without(r.Match, conditionText(&c))
		inner.Rules = append(inner.Rules, r)
	}
	w.Chains = append(w.Chains, inner)
	o.chains[name] = &w.Chains[len(w.Chains)-1]
	o.chainEffect(name)
	return name
}

// lead has the rule at a place of a chain and those behind it that ask for the same set
// go on to one chain, where all of them stand without the condition: so a backend lays
// the set out once for all, as it may where they do the same. Each decides what it
// matches, so that a packet that gets there by one of them matches none of those before it.
func (o *ordered) lead(w *work, chain, at int, c program.Condition) bool {
	rules := w.Chains[chain].Rules
	text := conditionText(&c)
	reads := effect{reads: map[string]bool{}}
	var members []int
	for i := at; i < len(rules) && i < at+ahead; i++ {
		r := &rules[i]
		if r.Stage == rules[at].Stage && o.scopeAt(i).texts[text] && o.terminal(r) && !o.leaves(r) && !countsElements(w.Program, without(r.Match, text)) {
			members = append(members, i)
			for j := range r.Match {
				o.reading(&reads, &r.Match[j])
			}
		}
		if !o.terminal(r) && !apart(o.effectAt(i).writes, reads.reads) {
			break
		}
	}
	other := func(i int) bool {
		a, b := &rules[at], &rules[i]
		return !slices.Equal(a.Actions, b.Actions) || len(a.Actions) > 1 && (a.ID != b.ID || a.ID == "")
	}
	if len(members) < 2 || members[0] != at || !slices.ContainsFunc(members, other) {
		return false
	}
	name := o.inner(w, chain, c, members, "what is left of the rules that ask for set %s")
	left := o.chains[name].Rules
	if last := &left[len(left)-1]; o.effect(last).bare { // others may have to know of the protocol
		last.Match = nil // who is here matches one of them
	}
	out := slices.Clone(rules)
	for _, i := range members {
		out[i] = program.Rule{
			Stage: rules[i].Stage, Match: rules[i].Match, Actions: []program.Action{program.Jump{Chain: name}},
			Comment: fmt.Sprintf("one of %d rules that ask for set %s", len(members), c.Set),
		}
	}
	w.say(fmt.Sprintf("chain %s: %d rules that ask for set %s lead to one chain", w.Chains[chain].Name, len(members), c.Set))
	w.Chains[chain].Rules = out
	return true
}

// widest gives, of the rules that share a condition, one that without it covers
// others, and these, of which it is one.
func (f *facts) widest(rules []program.Rule, with []int, text string) (widest int, members []int) {
	scopes := map[int]*scope{}
	for _, i := range with {
		r := rules[i]
		r.Match = without(r.Match, text)
		scopes[i] = f.scope(&r)
	}
	for _, k := range with {
		if countsElements(f.program, without(rules[k].Match, text)) {
			continue // asked before the chain and in it, an element would count a packet twice
		}
		var covered []int
		for _, i := range with {
			*f.compared++
			if scopes[k].covers(scopes[i]) {
				covered = append(covered, i)
			}
		}
		if len(covered) > len(members) {
			widest, members = k, covered
		}
	}
	return widest, f.together(rules, members, with)
}

// together leaves out the rules that cannot come up to the first: those in
// between that are no members stay where they are.
func (f *facts) together(rules []program.Rule, members, with []int) []int {
	var out, passed []int
	for _, i := range with {
		switch {
		case !slices.Contains(members, i):
			passed = append(passed, i)
		case !slices.ContainsFunc(passed, func(p int) bool { return len(out) > 0 && p > out[0] && !f.commute(&rules[p], &rules[i]) }):
			out = append(out, i)
		default:
			passed = append(passed, i)
		}
	}
	return out
}

// leaves says whether a rule leaves its chain for the one that led there, which
// from a chain further in is another place.
func (f *facts) leaves(r *program.Rule) bool {
	leaves := func(e program.Effect) bool { return e.Decides == program.Return || e.Ends && e.Goes != "" }
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		if e.Map == "" {
			return leaves(e)
		}
		set := f.sets[e.Map]
		return set == nil || slices.ContainsFunc(set.Elements, func(e program.Element) bool { return leaves(program.EffectOf(e.Verdict)) })
	})
}

func without(match []program.Condition, text string) []program.Condition {
	return slices.DeleteFunc(slices.Clone(match), func(c program.Condition) bool { return conditionText(&c) == text })
}
