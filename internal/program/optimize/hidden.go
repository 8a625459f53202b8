package optimize

import (
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/program"
)

// allCompared bounds how many rules of a chain are all compared with each other;
// beyond that, each is held against that many with one condition at the most.
const allCompared = 600

// dropHidden takes out rules that no packet reaches: those that cannot match,
// and those behind rules of their chain that leave them nothing.
func dropHidden(w *work) {
	f := w.facts()
	for i := range w.Chains {
		chain := &w.Chains[i]
		hidden := hiddenIn(f, chain)
		if len(hidden) == 0 {
			continue
		}
		n := -1
		chain.Rules = slices.DeleteFunc(chain.Rules, func(program.Rule) bool { n++; _, is := hidden[n]; return is })
		w.say(english.Plural(len(hidden), "rule") + " of chain " + chain.Name + " that no packet reaches went")
	}
}

// Hidden gives the rules that no packet reaches, of any program: by chain and place, the
// place of the rule that leaves it nothing, or -1 where no packet fits its conditions.
// doctor asks it of rulesets of other tools.
func Hidden(p *program.Program) map[string]map[int]int {
	f := newFacts(p)
	out := map[string]map[int]int{}
	for i := range p.Chains {
		if hidden := hiddenIn(f, &p.Chains[i]); len(hidden) > 0 {
			out[p.Chains[i].Name] = hidden
		}
	}
	return out
}

// ending is a rule that leaves nothing behind of what it matches.
type ending struct {
	scope *scope
	reads map[string]bool
	place int
}

// hiddenIn gives the places of the rules that no packet reaches, each with that of the
// rule that hides it.
func hiddenIn(f *facts, chain *program.Chain) map[int]int {
	out := map[int]int{}
	var before []ending // of the rules so far
	for i := range chain.Rules {
		r := &chain.Rules[i]
		s := f.scope(r)
		by := slices.IndexFunc(before, func(b ending) bool { *f.compared++; return b.scope.covers(s) })
		switch {
		case s.never:
			out[i] = -1
			continue
		case by >= 0:
			out[i] = before[by].place
			continue
		}
		e := f.effect(r)
		// What is asked behind a rule that writes it may have another answer, and what
		// has no words another one each time.
		before = slices.DeleteFunc(before, func(b ending) bool { return !apart(e.writes, b.reads) })
		if e.ends && !e.reads[string(program.Opaque)] && (len(r.Match) < 2 || len(chain.Rules) <= allCompared) && len(before) < allCompared {
			before = append(before, ending{s, e.reads, i})
		}
	}
	return out
}
