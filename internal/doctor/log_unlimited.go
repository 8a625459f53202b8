package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var logUnlimited = Check{
	ID:    "log-unlimited",
	What:  "a rule logs without a limit",
	Least: check.Warning,
	Why: `Each packet that matches it adds a line to the kernel's log, which journald and rsyslog read: a
flood of packets becomes a flood of lines, which costs more than the packets do. Chains that
are only reached through a rule with a limit are left out.`,
	Fix:  `Put "limit rate 5/minute" before log; in iptables, -m limit --limit 5/min.`,
	Undo: "Remove the limit.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			var where []Evidence
			n := 0
			bounded := boundedChains(r)
			for i := range r.Program.Chains {
				c := &r.Program.Chains[i]
				if bounded[c.Name] {
					continue
				}
				for j := range c.Rules {
					rule := r.Rules[c.Rules[j].ID]
					if rule == nil || !logsFreely(&c.Rules[j]) {
						continue
					}
					n++
					if len(where) < mostTop {
						where = append(where, found(toolOf(r), "chain %s, rule %d: %s", rule.Chain, rule.Number, clip(rule.Text)))
					}
				}
			}
			if n > 0 {
				say(Finding{
					Text:     fmt.Sprintf("%s of %s %s without a limit", english.Plural(n, "rule"), toolOf(r), map[bool]string{true: "logs", false: "log"}[n == 1]),
					Evidence: where,
					Fix:      []string{"limit rate 5/minute before log (iptables: -m limit --limit 5/min)"},
				})
			}
		}
	},
}

// logsFreely says that a rule logs to the kernel's log whatever matches.
func logsFreely(r *program.Rule) bool {
	for _, a := range r.Actions {
		if program.EffectOf(a).Gates {
			return false
		}
		if l, logs := a.(program.Log); logs && l.Group == 0 && l.Rate == (program.Rate{}) {
			return !slices.ContainsFunc(r.Match, func(c program.Condition) bool { return c.Field == program.Opaque })
		}
	}
	return false
}

// boundedChains are those that only rules with a limit, or with a condition that is not
// known, lead to.
func boundedChains(r *importer.Ruleset) map[string]bool {
	led, freely := map[string]bool{}, map[string]bool{}
	for _, c := range r.Program.Chains {
		for _, rule := range c.Rules {
			gated := slices.ContainsFunc(rule.Match, func(c program.Condition) bool { return c.Field == program.Opaque })
			for _, a := range rule.Actions {
				e := program.EffectOf(a)
				gated = gated || e.Gates
				for _, to := range []string{e.Calls, e.Goes} {
					if to != "" {
						led[to] = true
						freely[to] = freely[to] || !gated
					}
				}
			}
		}
	}
	for name := range led {
		led[name] = !freely[name]
	}
	return led
}
