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
		chain.Rules = slices.DeleteFunc(chain.Rules, func(program.Rule) bool { n++; return hidden[n] })
		w.say(english.Plural(len(hidden), "rule") + " of chain " + chain.Name + " that no packet reaches went")
	}
}

// hiddenIn gives the places of the rules that no packet reaches.
func hiddenIn(f *facts, chain *program.Chain) map[int]bool {
	out := map[int]bool{}
	var before []*scope // of the rules so far that leave nothing behind
	for i := range chain.Rules {
		r := &chain.Rules[i]
		s := f.scope(r)
		if s.never || slices.ContainsFunc(before, func(b *scope) bool { *f.compared++; return b.covers(s) }) {
			out[i] = true
			continue
		}
		if f.terminal(r) && (len(r.Match) < 2 || len(chain.Rules) <= allCompared) && len(before) < allCompared {
			before = append(before, s)
		}
	}
	return out
}
