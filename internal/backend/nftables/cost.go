package nftables

import (
	"slices"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// of estimates what a tree takes in the kernel.
func (m *CostModel) of(t *Tree) backend.Cost {
	chains := len(t.Chains)
	c := backend.Cost{Rules: t.ruleCount(), Objects: []backend.Objects{{Kind: "chains", Number: chains}, {Kind: "sets", Number: len(t.Sets)}}}
	memory := float64(c.Rules)*m.Memory.Rule + float64(chains)*m.Memory.Chain + float64(len(t.Counters)+len(t.Limits))*m.Memory.Object
	load := m.Load.Base + float64(c.Rules)*m.Load.Rule + float64(chains)*m.Load.Chain
	c.SwitchTime = uint64(load)
	for _, s := range t.Sets {
		n := s.Len()
		c.Elements += n
		bytes, ns := m.set(kindOf(s), n, slices.Contains(s.Types, "ipv6_addr"))
		if s.Counted {
			bytes += float64(n) * m.Memory.ElementCounter
		}
		bytes += float64(len(s.Elements.Counters)) * m.Memory.ElementComment
		memory, load = memory+bytes, load+ns
		if s.Life == program.Dynamic {
			// It may fill up to its size; an element has a limit or a count in it.
			c.Growth += uint64(float64(s.Size) * m.Memory.DynamicElement)
		}
	}
	c.Memory, c.LoadTime = uint64(memory), uint64(load)
	return c
}

// Change says what is there, and what comes beside it: sets that are not there
// yet, elements that living sets lack, and all rules where one is another.
func (n nftables) Change(want backend.Artifact, have backend.State) (before, added backend.Cost, err error) {
	h, err := stateOf(have)
	if err != nil {
		return before, added, err
	}
	w, err := artifactOf(want)
	if err != nil || w == nil {
		return n.costs.of(&h.Tree), added, err
	}
	return n.costs.of(&h.Tree), n.costs.of(beside(w.tree(), h)), nil
}

// beside is what of a tree the kernel lacks.
func beside(want *Tree, have *State) *Tree {
	out := &Tree{}
	for _, c := range want.Counters {
		if !slices.ContainsFunc(have.Tree.Counters, func(h Counter) bool { return h.Name == c.Name }) {
			out.Counters = append(out.Counters, c)
		}
	}
	for _, l := range want.Limits {
		if !slices.ContainsFunc(have.Tree.Limits, func(h Limit) bool { return h.Name == l.Name }) {
			out.Limits = append(out.Limits, l)
		}
	}
	for _, k := range want.Sets {
		h := have.Tree.set(k.Name)
		switch {
		case h == nil:
			out.Sets = append(out.Sets, k)
		case k.Life == program.Living:
			more := *k
			more.Elements, _ = difference(k, h)
			out.Sets = append(out.Sets, &more)
		}
	}
	if s := (&stepper{want: want, have: have}); !s.sameRules() {
		out.Chains = want.Chains
	}
	return out
}
