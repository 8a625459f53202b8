package doctor

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var linearRules = Check{
	ID:    "linear-rules",
	What:  "many rules in a row differ in one field only: a set needs one look-up",
	Least: check.Warning,
	Why: `A packet is compared with each rule of a chain until one ends its evaluation. With 650 rules of
one banned address each, a packet that is not banned is compared 650 times; a set needs one
look-up. Rules that do not end the evaluation (NOTRACK, MARK) are evaluated for all packets,
even those that an earlier rule has matched. Reported from 16 such rules in a row, as a warning
from 100.`,
	Fix: `Use a set: in nftables "ip saddr { … } drop" or a named set; in iptables an ipset and one rule;
in a policy of Sluice one ban with all of them.`,
	Undo: "Load the previous rules: save them first by iptables-save or nft list ruleset.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			for i := range r.Program.Chains {
				for _, u := range runs(r, &r.Program.Chains[i]) {
					f := Finding{
						Text:     fmt.Sprintf("%s of %s, chain %s, differ only in the %s", english.Plural(u.rules, "rule"), toolOf(r), u.first.Chain, u.field),
						Evidence: []Evidence{found(toolOf(r), "rule %d: %s", u.first.Number, clip(u.first.Text)), found(toolOf(r), "rule %d: %s", u.last.Number, clip(u.last.Text))},
						Cost:     fmt.Sprintf("about %.0f ns for each packet that reaches them and matches none", ruleCost(r, u.rules)),
						Fix:      []string{setFor(r, u)},
					}
					switch {
					case u.ends:
					case u.untracks:
						f.Text += ", and a packet that one of them leaves untracked is evaluated by all after it"
						f.Fix = append(f.Fix, "an accept after each NOTRACK, or a chain that does both")
					default:
						f.Text += ", and do not end the evaluation: a packet that one of them matches is evaluated by all after it"
					}
					if u.rules < badRun {
						f.Severity = check.Remark
					}
					say(f)
				}
			}
		}
	},
}

// setFor says what a set asks in place of a run of rules.
func setFor(r *importer.Ruleset, u run) string {
	word := map[program.Field]string{program.Source: "saddr", program.Destination: "daddr", program.SourcePort: "sport", program.Port: "dport"}[u.field]
	if r.Table != "" {
		if words := strings.Fields(u.first.Text); slices.Index(words, word) > 0 {
			return fmt.Sprintf("one rule instead, with %s %s { … }", words[slices.Index(words, word)-1], word)
		}
		return "one rule instead, with a set { … }"
	}
	if word == "" {
		return "a chain of their own, and one rule that jumps there on what they have in common"
	}
	kind, side := "bitmap:port range 0-65535", "dst"
	if strings.HasSuffix(word, "addr") {
		kind = "hash:net"
		if r.Family == "ip6" {
			kind += " family inet6"
		}
	}
	if word[0] == 's' {
		side = "src"
	}
	return fmt.Sprintf("ipset create NAME %s; ipset add NAME … for each; one rule instead, with -m set --match-set NAME %s", kind, side)
}

// run is consecutive rules of a chain that differ in the values of one field alone.
type run struct {
	first, last *importer.Rule
	field       program.Field
	rules       int
	untracks    bool
	ends        bool // a packet that one of them matches is asked by none behind it
}

// runs gives those of a chain that are long.
func runs(r *importer.Ruleset, c *program.Chain) (out []run) {
	var now run
	var before *program.Rule
	flush := func() {
		if now.rules >= longRun {
			out = append(out, now)
		}
	}
	for i := range c.Rules {
		rule := &c.Rules[i]
		of := r.Rules[rule.ID]
		if of == nil {
			continue
		}
		if before != nil && before.ID == rule.ID {
			before = rule
			continue // of one rule of the tool
		}
		field, like := "", false
		if before != nil {
			field, like = differ(before, rule)
		}
		if like && (now.rules == 1 || now.field == program.Field(field)) {
			now.rules++
			now.last, now.field = of, program.Field(field)
		} else {
			flush()
			now = run{first: of, last: of, rules: 1, untracks: untracks(rule), ends: ends(rule)}
		}
		before = rule
	}
	flush()
	return out
}

// differ says that two rules do the same for other values of one field, and of which.
func differ(a, b *program.Rule) (field string, like bool) {
	if len(a.Match) != len(b.Match) || actionsText(a) != actionsText(b) {
		return "", false
	}
	for i := range a.Match {
		x, y := &a.Match[i], &b.Match[i]
		if x.Field != y.Field || x.Not != y.Not || x.Set != "" || y.Set != "" || x.Field == program.Opaque && x.Text != y.Text {
			return "", false
		}
		if conditionText(x) == conditionText(y) {
			continue
		}
		if field != "" || x.Not {
			return "", false
		}
		field = string(x.Field)
	}
	return field, field != ""
}

func conditionText(c *program.Condition) string {
	return fmt.Sprint(c.Names, c.Numbers, c.Addresses, c.Mask, c.SetKey, c.Text)
}

func untracks(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return program.EffectOf(a).Untracks })
}

func ends(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return program.EffectOf(a).Ends })
}
