package optimize

import (
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

var (
	hookOrder  = []program.HookKind{program.XDP, program.Ingress, program.Prerouting, program.Input, program.Forward, program.Output, program.Postrouting, program.Egress}
	phaseOrder = []program.Phase{program.Early, program.Raw, program.Mangle, program.NAT, program.Watching, program.Filter, program.Behind}
)

// orderChains sorts hooks by a packet's way, chains by the hook or the chain
// that leads to them first, and sets and counters by name.
func orderChains(p *program.Program) {
	sorting.StableBy(p.Hooks, func(a, b program.Hook) int {
		if c := slices.Index(hookOrder, a.Kind) - slices.Index(hookOrder, b.Kind); c != 0 {
			return c
		}
		return slices.Index(phaseOrder, a.Phase) - slices.Index(phaseOrder, b.Phase)
	})
	place := map[string]int{}
	for i, name := range uses(p).order {
		place[name] = len(p.Hooks) + i
	}
	for i, h := range p.Hooks {
		place[h.Chain] = i
	}
	sorting.StableBy(p.Chains, func(a, b program.Chain) int { return place[a.Name] - place[b.Name] })
	sorting.StableBy(p.Sets, func(a, b program.Set) int { return strings.Compare(a.ID, b.ID) })
	sorting.StableBy(p.Counters, func(a, b program.Counter) int { return strings.Compare(a.Name, b.Name) })
}
