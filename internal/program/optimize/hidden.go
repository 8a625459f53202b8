package optimize

import (
	"slices"
	"strings"

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
		hidden := hiddenIn(f, chain, allCompared)
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
		against := allCompared
		if len(p.Chains[i].Rules) > 10*allCompared {
			against = allCompared / 10 // a hundred thousand rules are told in a second
		}
		if hidden := hiddenIn(f, &p.Chains[i], against); len(hidden) > 0 {
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
// rule that hides it. Of a chain of more than allCompared rules each is held against so
// many, and against all that say the same.
func hiddenIn(f *facts, chain *program.Chain, against int) map[int]int {
	out := map[int]int{}
	var before []ending      // of the rules so far
	same := map[string]int{} // the places of those, and of more, by what they say
	large := len(chain.Rules) > allCompared
	for i := range chain.Rules {
		r := &chain.Rules[i]
		s := f.scope(r)
		if s.never {
			out[i] = -1
			continue
		}
		says := ""
		if large {
			says = s.String()
		}
		if at, is := same[says]; is {
			out[i] = at
			continue
		}
		if by := slices.IndexFunc(before, func(b ending) bool { *f.compared++; return b.scope.covers(s) }); by >= 0 {
			out[i] = before[by].place
			continue
		}
		e := f.effect(r)
		if len(e.writes) > 0 {
			// What is asked behind a rule that writes it may have another answer.
			before = slices.DeleteFunc(before, func(b ending) bool { return !apart(e.writes, b.reads) })
			clear(same)
		}
		if !e.ends || e.reads[string(program.Opaque)] { // what has no words may be another thing each time
			continue
		}
		if large {
			same[says] = i
		}
		if (len(r.Match) < 2 || !large) && len(before) < against {
			before = append(before, ending{s, e.reads, i})
		}
	}
	return out
}

// String is what the conditions say, in their order.
func (s *scope) String() string {
	var b strings.Builder
	for _, n := range s.needs {
		b.WriteString(n.text)
		b.WriteByte('\n')
	}
	return b.String()
}
