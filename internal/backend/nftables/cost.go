package nftables

import (
	"slices"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// costOf estimates what a tree takes in the kernel.
func costOf(t *Tree) backend.Cost {
	c := backend.Cost{Rules: t.ruleCount(), Chains: len(t.Chains), Sets: len(t.Sets)}
	c.Memory = uint64(c.Rules)*bytesPerRule + uint64(len(t.Counters)+len(t.Limits))*bytesPerObject
	c.LoadTime = loadTimeBase + uint64(c.Rules)*loadTimePerRule
	for _, s := range t.Sets {
		n := s.Len()
		c.Elements += n
		bytes, ns := bytesPerHashElement, loadTimePerHashElement
		switch {
		case s.Interval && len(s.Types) > 1:
			bytes, ns = bytesPerConcatElement, loadTimePerConcatElement
		case s.Interval:
			bytes, ns = bytesPerInterval, loadTimePerInterval
		}
		if slices.Contains(s.Types, "ipv6_addr") {
			bytes += bytesMoreForIPv6
		}
		if s.Counted {
			bytes += bytesPerElementCounter
		}
		c.Memory += bytesPerSet + uint64(n)*bytes
		c.LoadTime += uint64(n) * ns
		if s.Life == program.Dynamic {
			// It may fill up to its size; an element has a limit or a count in it.
			c.Growth += uint64(s.Size) * bytesPerDynamicElement
		}
	}
	return c
}
