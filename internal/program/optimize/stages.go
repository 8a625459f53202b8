package optimize

import (
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// orderStages sorts the rules of each base chain by their stage; rules of one
// stage keep their order.
func orderStages(p *program.Program) {
	place := map[program.Stage]int{}
	for i, s := range program.Stages {
		place[s.Stage] = i
	}
	for _, h := range p.Hooks {
		chain := p.Chain(h.Chain)
		sorting.StableBy(chain.Rules, func(a, b program.Rule) int { return place[a.Stage] - place[b.Stage] })
	}
}
