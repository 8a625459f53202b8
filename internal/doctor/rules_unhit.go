package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var unhitRules = Check{
	ID:    "rules-unhit",
	What:  "many rules of a chain have counted nothing, while a million packets were counted after them",
	Least: check.Remark,
	Why: `A rule is evaluated whether or not it ever matches. The doctor reads the counters of rules and
of chain policies: a packet that a rule counted has passed all rules above it in its chain.
Counters begin with the rule, so a rule that was added today may rightly have counted little;
rules of nftables count only with the word "counter". Reported from ten rules of a chain. Rules
for rare packets must stay, but may move further down.`,
	Fix: `Find out whether anybody still needs them; move rules for rare packets into a set or a chain of
their own.`,
	Undo: "Load the previous rules: save them first by iptables-save or nft list ruleset.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			for i := range r.Program.Chains {
				idle, behind := idleRules(r, &r.Program.Chains[i])
				if len(idle) < manyIdle {
					continue
				}
				first, last := idle[0], idle[len(idle)-1]
				say(Finding{
					Text: fmt.Sprintf("%s of %s, chain %s, have counted nothing, while %s packets were counted after them", english.Plural(len(idle), "rule"), toolOf(r), first.Chain, english.Grouped(behind)),
					Evidence: []Evidence{
						found(toolOf(r), "rule %d, 0 packets: %s", first.Number, clip(first.Text)), found(toolOf(r), "rule %d, 0 packets: %s", last.Number, clip(last.Text)),
					},
					Cost: fmt.Sprintf("about %.0f ns for each packet that passes them", ruleCost(r, len(idle))),
					Fix:  []string{"find out whether anybody needs them; put those that stay into one set, or into a chain of their own behind one condition"},
				})
			}
		}
	},
}

const (
	muchTraffic = 1_000_000 // packets that came by a rule, from here on worth a remark
	manyIdle    = 10        // rules of a chain
)

// idleRules are those of a chain that have counted nothing, and that many packets have come
// by; and the least of how many came by each.
func idleRules(r *importer.Ruleset, c *program.Chain) (idle []*importer.Rule, behind uint64) {
	came := uint64(0) // the most that was counted at one place behind
	for i := range r.Bases {
		if r.Program.Hooks[i].Chain == c.Name && r.Bases[i].Count != nil {
			came = r.Bases[i].Count.Packets
		}
	}
	for i := len(c.Rules) - 1; i >= 0; i-- {
		rule := r.Rules[c.Rules[i].ID]
		if rule == nil || rule.Count == nil || i > 0 && c.Rules[i-1].ID == c.Rules[i].ID {
			continue
		}
		if rule.Count.Packets == 0 && came >= muchTraffic {
			if idle = append(idle, rule); behind == 0 {
				behind = came
			}
		}
		came = max(came, rule.Count.Packets)
	}
	slices.Reverse(idle)
	return idle, behind
}
