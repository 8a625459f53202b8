package optimize

import (
	"fmt"
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
	run      func(*program.Program)
}

// Passes is every pass in the order in which they run.
var Passes = []Pass{
	{
		Name: "merge-prefixes", Required: true,
		Promises: "the elements of every set are sorted and disjoint; adjacent ones are one, unless they are counted apart",
		Reason:   "the kernel refuses overlapping intervals, and contained or adjacent ones are memory for nothing; first, since every later pass may count elements",
		run:      mergePrefixes,
	},
	{
		Name: "ban-stage", Required: true, Needs: []string{"merge-prefixes"},
		Promises: "bans are asked before connection tracking; the hooks behind it ask only for destinations that were rewritten on the way",
		Reason:   "a ban concerns every packet, so it is dropped at the first hook; a rule concerns new flows and stays where the state is known",
		run:      banStage,
	},
	{
		Name: "stages", Required: true, Needs: []string{"ban-stage"},
		Promises: "the rules of a base chain stand in the order of program.Stages: established before any set",
		Reason:   "replies are decided before a rule could refuse them; behind ban-stage, which moves rules between base chains",
		run:      orderStages,
	},
	{
		Name: "unused", Needs: []string{"stages"},
		Promises: "no chain, set or counter that nothing asks for; no base chain that accepts all it sees",
		Reason:   "a base chain costs every packet; last, since the passes before it leave empty chains behind",
		run:      dropUnused,
	},
	{
		Name: "chain-order", Required: true, Needs: []string{"unused"},
		Promises: "base chains in the order of a packet's way, then the others by first use",
		Reason:   "the same program gives the same bytes, and a reader finds the next chain below",
		run:      orderChains,
	},
}

// Options is how Run works.
type Options struct {
	Without []string // passes that are left out, by name
	Check   bool     // check the program's invariants after every pass
	// After, where set, sees the program after each pass.
	After func(pass string, p *program.Program)
}

// Run rewrites the program in place.
func Run(p *program.Program, opt Options) error {
	passes, err := choose(opt.Without)
	if err != nil {
		return err
	}
	for _, pass := range passes {
		pass.run(p)
		if opt.Check {
			if err := p.Check(); err != nil {
				return fmt.Errorf("pass %s left a broken program: %w", pass.Name, err)
			}
		}
		if opt.After != nil {
			opt.After(pass.Name, p)
		}
	}
	return nil
}

// choose gives the passes to run and holds the table to its constraints.
func choose(without []string) ([]Pass, error) {
	var out []Pass
	var seen []string
	for _, pass := range Passes {
		for _, need := range pass.Needs {
			if !slices.Contains(seen, need) {
				return nil, fmt.Errorf("pass %s needs %s before it", pass.Name, need)
			}
		}
		seen = append(seen, pass.Name)
		if !slices.Contains(without, pass.Name) {
			out = append(out, pass)
		} else if pass.Required {
			return nil, fmt.Errorf("pass %s cannot be left out: %s", pass.Name, pass.Reason)
		}
	}
	for _, name := range without {
		if !slices.Contains(seen, name) {
			return nil, fmt.Errorf("no pass is called %q", name)
		}
	}
	return out, nil
}
