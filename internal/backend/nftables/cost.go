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
