package optimize

import (
	"slices"

	"sluice/internal/program"
)

// Pass is one rewriting of a program.
type Pass struct {
	Name     string
	Needs    []string // passes that must have run before
	Promises string   // what holds of the program afterwards
	Reason   string   // why it is there, and why here
	Required bool     // the program is not right without it; it cannot be switched off
	run      func(*work)
}

// work is a program under a pass.
type work struct {
	*program.Program
	options  *Options
	did      []string
	compared int // comparisons of rules that the pass has made
}

// facts answers what a pass asks, and counts for it.
func (w *work) facts() *facts {
	f := newFacts(w.Program)
	f.compared = &w.compared
	return f
}

// say notes in words what the pass did.
func (w *work) say(text string) { w.did = append(w.did, text) }

// Optional is the names of the passes that a program is right without.
func Optional() []string {
	var out []string
	for _, p := range Passes {
		if !p.Required {
			out = append(out, p.Name)
		}
	}
	return out
}

// programOnly is a pass that needs the program alone.
func programOnly(pass func(*program.Program)) func(*work) {
	return func(w *work) { pass(w.Program) }
}

// Passes is every pass in the order in which they run.
var Passes = []Pass{
	{
		Name: "merge-prefixes", Required: true,
		Promises: "the elements of every set are sorted and disjoint; adjacent ones are one, unless they are counted apart",
		Reason:   "the kernel refuses overlapping intervals, and contained or adjacent ones are memory for nothing; first, since every later pass may count elements",
		run:      programOnly(mergePrefixes),
	},
	{
		Name: "ban-stage", Required: true, Needs: []string{"merge-prefixes"},
		Promises: "each end of a packet is looked up once: the source before tracking, established TCP by its flags only, and the destination behind established flows",
		Reason:   "look-ups for every packet are the largest cost of a policy; before stages, which puts in order what it moves between base chains",
		run:      banStage,
	},
	{
		Name: "stages", Required: true, Needs: []string{"ban-stage"},
		Promises: "the rules of a base chain are in the order of program.Stages",
		Reason:   "replies are decided before a rule could refuse them; behind ban-stage, which moves rules between base chains",
		run:      programOnly(orderStages),
	},
	{
		Name: "rules-to-sets", Needs: []string{"stages"},
		Promises: "no five rules that commute do the same and differ in only one field",
		Reason:   "a set costs one look-up whatever its size, as much as some four comparisons, so fewer rules stay as they are; behind stages, because only rules of one stage are merged",
		run:      rulesToSets,
	},
	{
		Name: "verdict-maps", Needs: []string{"rules-to-sets"},
		Promises: "nor five that differ in one field and the verdict",
		Reason:   "one look-up instead of a set for each verdict; each of the three takes what the others leave, so it is behind rules-to-sets only for the reader",
		run:      verdictMaps,
	},
	{
		Name: "concatenations", Needs: []string{"verdict-maps"},
		Promises: "nor five that differ in several fields",
		Reason:   "a key of several fields is one look-up too; before terminal, which then sees only the merged rules",
		run:      concatenations,
	},
	{
		Name: "factor", Needs: []string{"concatenations"},
		Promises: "adjacent rules, several of which a packet may match, look up a large set they share once; others that look up a set of thousands share a chain behind it",
		Reason:   "a large set costs more than all other conditions of a rule together; and a set of thousands may be laid out in chains, for each place that it leads to; behind the merging of rules, which may leave one rule of several",
		run:      factor,
	},
	{
		Name: "implied", Needs: []string{"concatenations", "factor"},
		Promises: "no rule looks up among several numbers what a set that it looks up has answered, nor addresses and ports together of which a set has every combination",
		Reason:   "it avoids two look-ups where one is enough, or a hash of both where comparisons are; behind the merging of rules, which makes such sets too, and before hidden, which compares what is left",
		run:      dropImplied,
	},
	{
		Name: "hidden", Needs: []string{"stages"},
		Promises: "no rule that no packet reaches",
		Reason:   "what no packet reaches costs those that pass it; behind the merging of rules, which leaves fewer to compare",
		run:      dropHidden,
	},
	{
		Name: "terminal", Needs: []string{"stages", "hidden"},
		Promises: "established flows, packets other than TCP and packets that bypass tracking leave their base chains before whatever cannot match them",
		Reason:   "every rule that does not decide a packet is wasted on it; behind stages, whose order it only leaves where rules commute",
		run:      terminalEarly,
	},
	{
		Name: "reorder", Needs: []string{"terminal"},
		Promises: "where rules commute, those that were hit often come before those that were hit less",
		Reason:   "only a running firewall knows what its packets are; behind terminal, whose rules nothing may go past, and before dispatch, whose chains keep the order",
		run:      reorder,
	},
	{
		Name: "dispatch", Needs: []string{"reorder"},
		Promises: "ten or more comparisons, each of a protocol and ports, an interface or a protocol, become one look-up",
		Reason:   "one look-up takes as long as four or five comparisons; behind the merging of rules and their order, since it takes what these left",
		run:      dispatch,
	},
	{
		Name: "base-chains", Needs: []string{"dispatch"},
		Promises: "no base chain only repeats what another has decided, and none ends in its own default",
		Reason:   "a base chain costs each packet of its hook as much as three comparisons; behind terminal, which may leave rules without a use",
		run:      baseChains,
	},
	{
		Name: "unused", Needs: []string{"stages", "base-chains"},
		Promises: "no rule about a label that no rule turns on; no unused chain, set or counter; no base chain that accepts everything",
		Reason:   "a base chain costs every packet; last of those that change rules, since they leave empty chains behind",
		run:      programOnly(dropUnused),
	},
	{
		Name: "chain-order", Required: true, Needs: []string{"unused"},
		Promises: "base chains in the order of a packet's way, then the others by first use",
		Reason:   "the same program gives the same bytes, and a reader finds the next chain below",
		run:      programOnly(orderChains),
	},
}

// Named gives the pass of that name, or nil.
func Named(name string) *Pass {
	if i := slices.IndexFunc(Passes, func(p Pass) bool { return p.Name == name }); i >= 0 {
		return &Passes[i]
	}
	return nil
}
