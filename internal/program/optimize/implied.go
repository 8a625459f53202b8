package optimize

import (
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/program"
)

// dropImplied takes out of a rule the question whether a field has one of several
// numbers, where the rule looks up that field with others in a set whose elements
// have no other numbers: the services of a bypass beside the listeners that it is
// limited to.
//
// A question for one number or one range stays. It is a comparison or two, and keeps
// the packets of everything else from being looked up: on Linux 6.1 it takes 175
// instructions from those that are looked up, and saves the others 265.
func dropImplied(w *work) {
	for i := range w.Chains {
		chain := &w.Chains[i]
		dropped := 0
		for j := range chain.Rules {
			r := &chain.Rules[j]
			kept := slices.DeleteFunc(slices.Clone(r.Match), func(c program.Condition) bool { return implied(w.Program, r, &c) })
			if len(kept) < len(r.Match) {
				dropped += len(r.Match) - len(kept)
				r.Match = kept
			}
		}
		if dropped > 0 {
			w.say("chain " + chain.Name + ": " + english.Plural(dropped, "question") + " left out that a look-up in the same rule answers")
		}
	}
}

// implied says whether a set that the rule looks up has the answer already.
func implied(p *program.Program, r *program.Rule, c *program.Condition) bool {
	if c.Not || c.Mask != 0 || c.Set != "" || len(c.Numbers) < 2 {
		return false
	}
	return slices.ContainsFunc(r.Match, func(look program.Condition) bool {
		at := slices.Index(look.SetKey, c.Field)
		set := p.Set(look.Set)
		return at >= 0 && !look.Not && set != nil && set.Life == program.Static && !set.Commands && len(set.Elements) > 0 &&
			!slices.ContainsFunc(set.Elements, func(e program.Element) bool { return !within(e.Parts[at].Numbers, c.Numbers) })
	})
}

// within says whether one of the ranges holds all of n.
func within(n program.NumberRange, ranges []program.NumberRange) bool {
	return slices.ContainsFunc(ranges, func(r program.NumberRange) bool { return r.From <= n.From && n.To <= r.To })
}
