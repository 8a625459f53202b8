package nftables

import (
	"slices"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// costOf estimates what a tree takes in the kernel.
func costOf(t *Tree) backend.Cost {
	c := backend.Cost{Rules: t.ruleCount(), Chains: len(t.Chains), Sets: len(t.Sets)}
	c.Memory = uint64(c.Rules)*bytesPerRule + uint64(c.Chains)*bytesPerChain + uint64(len(t.Counters)+len(t.Limits))*bytesPerObject
	c.LoadTime = loadTimeBase + uint64(c.Rules)*loadTimePerRule + uint64(c.Chains)*loadTimePerChain
	for _, s := range t.Sets {
		n := s.Len()
		c.Elements += n
		bytes, ns := kindOf(s).cost(n, slices.Contains(s.Types, "ipv6_addr"))
		if s.Counted {
			bytes += uint64(n) * bytesPerElementCounter
		}
		bytes += uint64(len(s.Elements.Counters)) * bytesPerElementComment
		c.Memory, c.LoadTime = c.Memory+bytes, c.LoadTime+ns
		if s.Life == program.Dynamic {
			// It may fill up to its size; an element has a limit or a count in it.
			c.Growth += uint64(s.Size) * bytesPerDynamicElement
		}
	}
	return c
}

// Change says what is there, and what comes beside it: sets that are not there
// yet, elements that living sets lack, and all rules where one is another.
func (nftables) Change(want backend.Artifact, have backend.State) (before, added backend.Cost, err error) {
	h, err := stateOf(have)
	if err != nil {
		return before, added, err
	}
	w, err := artifactOf(want)
	if err != nil || w == nil {
		return costOf(&h.Tree), added, err
	}
	return costOf(&h.Tree), costOf(beside(w.tree(), h)), nil
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
