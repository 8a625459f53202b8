package doctor

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/importer"
	"sluice/internal/program"
)

const (
	longRun = 16  // rules that a set would replace, from here on worth a remark
	badRun  = 100 // and a warning
	// What one rule costs a packet that it does not match, in ns: of the 750 rules of
	// story 2 on kernel 6.18, by iptables-nft and by iptables-legacy.
	ruleNS, legacyRuleNS = 7.2, 3.8
)

// ruleCost is what n rules cost a packet that none of them matches, in ns.
func ruleCost(r *importer.Ruleset, n int) float64 {
	if r.Tool == "iptables-legacy" {
		return float64(n) * legacyRuleNS
	}
	return float64(n) * ruleNS
}

// actionsText is what a rule does beside counting.
func actionsText(r *program.Rule) string {
	var b strings.Builder
	for _, a := range r.Actions {
		if _, counts := a.(program.Count); !counts {
			fmt.Fprintf(&b, "%T%v;", a, a)
		}
	}
	return b.String()
}

const lateRules = 20

// filters says that a base chain, or one that it leads to, refuses anything.
func filters(p *program.Program, h program.Hook) bool {
	return h.Default == program.Drop || slices.ContainsFunc(chainsFrom(p, h.Chain), func(c *program.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r program.Rule) bool {
			return slices.ContainsFunc(r.Actions, func(a program.Action) bool {
				e := program.EffectOf(a)
				return e.Decides == program.Drop || e.Decides == program.Reject
			})
		})
	})
}
