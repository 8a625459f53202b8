package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
)

var hiddenRules = Check{
	ID:    string(check.HiddenRule),
	What:  "rules above decide all packets of a rule, or no packet fits its conditions",
	Least: check.Warning,
	Why: `The first rule that ends a packet's way decides, so a rule below it for the same packets
never does: what was let in stays let in, whatever was added behind. Each rule is held against
each one above it in its chain, by what their conditions say; of chains of more than 600 rules,
against those above that say the same, and some with one condition. A rule for all packets behind a jump that none comes
back from is left out: it waits for rules to come. A condition that is not known, or is true by chance or
rate, hides nothing. A remark where both do the same, as after a script that was run twice.`,
	Mend: "Take the rule away, or put it above the one that hides it.",
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
							text := "no packet fits its conditions"
							if of := r.Rules[above.ID]; of != nil {
								text = fmt.Sprintf("behind rule %d: %s", of.Number, clip(of.Text))
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
						Cost:     fmt.Sprintf("some %.0f ns for each packet that comes to their end", ruleCost(r, n)),
						Mend:     []string{"take them away, or put them above the rules that hide them"},
					}
					if same {
						f.Severity = check.Remark
						f.Text += ": rules above do the same to all of their packets"
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

const (
	muchTraffic = 1_000_000 // packets that came by a rule, from here on worth a remark
	manyIdle    = 10        // rules of a chain
)

var unhitRules = Check{
	ID:    "rules-unhit",
	What:  "many rules of a chain have counted nothing, while a million packets were counted behind them",
	Least: check.Remark,
	Why: `A rule is asked whether or not it ever matches. Looked at are the counters of rules and of
the policies of chains: a packet that was counted by a rule has come by all that stand above it
in its chain. Counters begin with the rule, so one that was added today has counted little by
right; rules of nftables count only where they say "counter". Said from ten rules of a chain
on. What waits for rare packets has to stay, and may stand further down.`,
	Mend: "Ask whether somebody needs them still; a set or a chain of its own for what few packets concern.",
	Undo: "Load the rules as they were: iptables-save or nft list ruleset writes them down before.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			for i := range r.Program.Chains {
				idle, behind := idleRules(r, &r.Program.Chains[i])
				if len(idle) < manyIdle {
					continue
				}
				first, last := idle[0], idle[len(idle)-1]
				say(Finding{
					Text: fmt.Sprintf("%s of %s, chain %s, have counted nothing, and %s packets were counted behind them", english.Plural(len(idle), "rule"), toolOf(r), first.Chain, english.Grouped(behind)),
					Evidence: []Evidence{
						found(toolOf(r), "rule %d, 0 packets: %s", first.Number, clip(first.Text)), found(toolOf(r), "rule %d, 0 packets: %s", last.Number, clip(last.Text)),
					},
					Cost: fmt.Sprintf("some %.0f ns for each packet that comes by them", ruleCost(r, len(idle))),
					Mend: []string{"ask whether somebody needs them still; one set, or a chain of their own behind one condition, for those that stay"},
				})
			}
		}
	},
}

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
