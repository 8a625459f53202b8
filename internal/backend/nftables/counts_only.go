package nftables

import (
	"fmt"
	"slices"
	"strings"
)

// countsOnly says what in the tree does more to a packet than count it: the last
// gate before the kernel for a program that must do nothing.
func (t *Tree) countsOnly() error {
	if len(t.Flowtables) > 0 {
		return fmt.Errorf("it has a flowtable")
	}
	for _, k := range t.Sets {
		if slices.ContainsFunc(k.Elements.Verdicts, func(v string) bool { return !harmlessVerdict(v) }) {
			return fmt.Errorf("an element of map %s drops", k.Name)
		}
	}
	for _, c := range t.Chains {
		if c.Base != nil && (c.Base.Type != "filter" || c.Base.Policy != "accept") {
			return fmt.Errorf("chain %s is of type %s with policy %s", c.Name, c.Base.Type, c.Base.Policy)
		}
		for _, r := range c.Rules {
			for _, s := range slices.Concat(r.Statements, inner(r.Statements)) {
				if !s.harmless() {
					return fmt.Errorf("chain %s: %s", c.Name, s.text())
				}
			}
		}
	}
	return nil
}

func (s Statement) harmless() bool {
	switch s.Kind {
	case Match, Jump, Goto, Count, RateLimit:
		return true
	case SetAdd:
		return s.Op == "add" || s.Op == "update"
	case Verdict:
		return harmlessVerdict(s.Name)
	case VerdictMap:
		for _, v := range s.Map {
			if !harmlessVerdict(v) {
				return false
			}
		}
		return true
	}
	return false
}

func harmlessVerdict(v string) bool {
	verb, _, _ := strings.Cut(v, " ")
	return slices.Contains([]string{"accept", "return", "continue", "jump", "goto"}, verb)
}
