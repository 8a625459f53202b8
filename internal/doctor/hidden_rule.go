package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
)

var hiddenRules = Check{
	ID:    string(check.HiddenRule),
	What:  "a rule can never match: rules above it decide all of its packets, or its conditions contradict each other",
	Least: check.Warning,
	Why: `The first rule that matches decides, so a rule below it for the same packets never takes
effect: what was accepted stays accepted, whatever was added below. Each rule is compared with
each one above it in its chain, by their conditions; in chains of more than 600 rules, with
those above that have the same conditions and some with one condition. A rule for all packets
after a jump that never returns is left out: it is there for rules to come. A condition that is
not known, or that depends on chance or a rate, hides nothing. A remark if both rules do the
same, as after a script that ran twice.`,
	Fix:  "Delete the rule, or move it above the one that hides it.",
	Undo: "Add the rule where it was.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			all := optimize.Hidden(r.Program)
			for i := range r.Program.Chains {
				c := &r.Program.Chains[i]
				hidden := all[c.Name]
				if hidden == nil {
					continue
				}
				for _, same := range []bool{false, true} {
					n, where := 0, []Evidence{}
					for i := range c.Rules {
						rule := r.Rules[c.Rules[i].ID]
						by, is := hidden[i]
						if !is || rule == nil || i > 0 && c.Rules[i-1].ID == c.Rules[i].ID || !wholly(c, hidden, i) {
							continue
						}
						above := &program.Rule{}
						if by >= 0 {
							above = &c.Rules[by]
						}
						if same != (actionsText(above) == actionsText(&c.Rules[i])) || len(c.Rules[i].Match) == 0 && leads(r.Program, above) {
							continue
						}
						if n++; len(where) < mostTop {
							text := "its conditions contradict each other"
							if of := r.Rules[above.ID]; of != nil {
								text = fmt.Sprintf("below rule %d: %s", of.Number, clip(of.Text))
							}
							where = append(where, found(toolOf(r), "chain %s, rule %d: %s: %s", rule.Chain, rule.Number, clip(rule.Text), text))
						}
					}
					if n == 0 {
						continue
					}
					f := Finding{
						Text:     fmt.Sprintf("%s of %s, chain %s, can never match", english.Plural(n, "rule"), toolOf(r), r.Rules[c.Rules[0].ID].Chain),
						Evidence: where,
						Cost:     fmt.Sprintf("about %.0f ns for each packet that passes them all", ruleCost(r, n)),
						Fix:      []string{"delete them, or move them above the rules that hide them"},
					}
					if same {
						f.Severity = check.Remark
						f.Text += ": rules above them do the same to all of their packets"
					}
					say(f)
				}
			}
		}
	},
}

// leads says that a rule goes on in another chain.
func leads(p *program.Program, r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return len(p.Leads(a)) > 0 })
}

// wholly says that all of a tool's rule is hidden, which may be several of the program.
func wholly(c *program.Chain, hidden map[int]int, from int) bool {
	for i := from; i < len(c.Rules) && c.Rules[i].ID == c.Rules[from].ID; i++ {
		if _, is := hidden[i]; !is {
			return false
		}
	}
	return true
}
