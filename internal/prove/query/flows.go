package query

import (
	"slices"

	"sluice/internal/program"
)

// asMeant is a program that asks of all packets whether their addresses are banned.
// The optimizer's asks that of what begins a flow alone, since apply deletes the
// flows of banned addresses; of their packets a policy means that they are dropped.
func asMeant(p *program.Program) *program.Program {
	out := *p.BehindRouting()
	out.Chains = slices.Clone(out.Chains)
	for i := range out.Chains {
		c := &out.Chains[i]
		c.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r program.Rule) bool { return r.Stage == program.StageFlow })
	}
	return &out
}
