package nftables

import (
	"maps"
	"slices"
)

// verdicts are those that a statement with a verdict map may come to.
func (t *Tree) verdicts(s Statement) []string {
	if s.Set == "" {
		return slices.Sorted(maps.Values(s.Map))
	}
	if k := t.set(s.Set); k != nil {
		return k.Elements.Verdicts
	}
	return nil
}
