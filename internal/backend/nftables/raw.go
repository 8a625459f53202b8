package nftables

import (
	"maps"
	"slices"
	"strings"
)

// Sets whose key is a part of the packet as it is, "@nh,96,8". They are defined
// by "typeof", since nft has no name for their type.

// rawInteger is what nft 1.0.6 lists as the type of such a set, without its
// size; 1.1 lists what typeof was given.
const rawInteger = "integer"

// raw says whether the set's key is a part of the packet.
func (s *Set) raw() bool {
	return len(s.Types) == 1 && (strings.HasPrefix(s.Types[0], "@") || s.Types[0] == rawInteger)
}

// rawTypes reads the type of a set that is listed as an expression.
func rawTypes(v any) []string {
	m, isMap := v.(map[string]any)
	if !isMap || m["typeof"] == nil {
		return nil
	}
	field, mask, ok := fieldOfExpr(m["typeof"])
	if !ok || mask != "" {
		return nil
	}
	return []string{field}
}

// definitionOf is the definition of a set that was read, for comparison with
// the one that was meant: where both have a part of the packet as their key it
// is taken to be the same, which its contents show.
func (s *Set) definitionOf(expected *Set) string {
	if s.raw() && expected.raw() {
		same := *s
		same.Types = expected.Types
		return same.definition()
	}
	return s.definition()
}

// verdicts are those of a verdict map, in the rule or by name.
func (t *Tree) verdicts(s Statement) []string {
	if s.Set == "" {
		return slices.Sorted(maps.Values(s.Map))
	}
	if k := t.set(s.Set); k != nil {
		return k.Elements.Verdicts
	}
	return nil
}
