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

func untracks(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return program.EffectOf(a).Untracks })
}

func ends(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return program.EffectOf(a).Ends })
}

var linearRules = Check{
	ID:    "linear-rules",
	What:  "a run of rules differs in one field alone: a set would be asked once",
	Least: check.Warning,
	Why: `Each packet is asked by every rule of a chain until one ends its way, so 650 rules with
a banned address each are 650 questions for whoever is not banned; a set answers in one. Rules
that do not end the way (NOTRACK, MARK) are asked by all packets, those too that one before
has matched. Said from 16 such rules in a row, as a warning from 100.`,
	Mend: `A set: in nftables "ip saddr { … } drop" or a named set; for iptables an ipset and one
rule; in a policy of Sluice one ban of all of them.`,
	Undo: "Load the rules as they were: iptables-save or nft list ruleset writes them down before.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			for i := range r.Program.Chains {
				for _, u := range runs(r, &r.Program.Chains[i]) {
					f := Finding{
						Text:     fmt.Sprintf("%s of %s, chain %s, differ in the %s alone", english.Plural(u.rules, "rule"), toolOf(r), u.first.Chain, u.field),
						Evidence: []Evidence{found(toolOf(r), "rule %d: %s", u.first.Number, clip(u.first.Text)), found(toolOf(r), "rule %d: %s", u.last.Number, clip(u.last.Text))},
						Cost:     fmt.Sprintf("some %.0f ns for each packet that comes to them and matches none", ruleCost(r, u.rules)),
						Mend:     []string{setFor(r, u)},
					}
					switch {
					case u.ends:
					case u.untracks:
						f.Text += ", and a packet that one of them keeps out of connection tracking is asked by all behind it"
						f.Mend = append(f.Mend, "an accept behind each NOTRACK, or a chain that does both")
					default:
						f.Text += ", and end nothing: a packet that one of them matches is asked by all behind it"
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

const lateRules = 20

var establishedLate = Check{
	ID:    "established-late",
	What:  "packets of known connections are asked by many rules before one lets them in",
	Least: check.Warning,
	Why: `Nearly all packets of a host belong to connections that are known. Where the rule that
lets them in does not stand first, each of them is asked by all rules before it. Asked is a
packet of an established connection to port 40000; said from 20 rules of one chain on, and its
jumps. Chains that stand before connection tracking (raw), that mark (mangle) and that rewrite (nat)
are left out: what is first there cannot know the connection, or must not end the way.`,
	Mend: `"ct state established,related accept" as the first rule of the chain.`,
	Undo: "Move the rule back.",
	look: func(s *Seen, say func(Finding)) {
		for _, c := range Costs(s.Rules) {
			if c.Known.Rules < lateRules || !c.filters() || c.Hook != program.Prerouting && c.Hook != program.Input {
				continue
			}
			mend, undo := letKnown(c.of, c.base.Kind, c.base.Chain)
			say(Finding{
				Text:     fmt.Sprintf("a packet of a known connection is asked by %s of %s", english.Plural(c.Known.Rules, "rule"), c.Text()),
				Evidence: []Evidence{found(c.Ruleset, "tcp from %s:%d to port %d, established: %s asked", CostFrom[c.FamilyOf()], CostFromPort, CostToPort, english.Plural(c.Known.Rules, "rule"))},
				Cost:     fmt.Sprintf("some %.0f ns for each packet", c.Known.NS),
				Mend:     mend,
				Undo:     undo,
			})
		}
	},
}

var logUnlimited = Check{
	ID:    "log-unlimited",
	What:  "a rule logs without a limit",
	Least: check.Warning,
	Why: `Each packet that meets it is a line of the kernel's log, which journald and rsyslog read:
a flood of packets becomes a flood of lines, and that costs more than the packets do. Rules of
chains that only a rule with a limit leads to are left out.`,
	Mend: `"limit rate 5/minute" before log; iptables: -m limit --limit 5/min.`,
	Undo: "Take the limit away.",
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
					Mend:     []string{"limit rate 5/minute before log (iptables: -m limit --limit 5/min)"},
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

var twoFirewalls = Check{
	ID:    "two-firewalls",
	What:  "legacy iptables and nftables both filter what comes in",
	Least: check.Warning,
	Why: `A packet has to pass both, and each tool shows its own rules alone: what "iptables -L"
lets in, the other one may drop. It comes about where a program brings an iptables of its own,
or after an upgrade.`,
	Mend: "One of them: load the rules of iptables-legacy-save with iptables-nft-restore, then flush the legacy ones.",
	Undo: "iptables-legacy-restore with what iptables-legacy-save wrote before.",
	look: func(s *Seen, say func(Finding)) {
		var legacy, other []Evidence
		for _, r := range s.Rules {
			for _, h := range r.Program.Hooks {
				if h.Kind != program.Input || h.Phase == program.NAT || !filters(r.Program, h) {
					continue
				}
				e := found(toolOf(r), "chain %s of hook input, priority of phase %s", h.Chain, h.Phase)
				if r.Tool == "iptables-legacy" {
					legacy = append(legacy, e)
				} else {
					other = append(other, e)
				}
			}
		}
		if len(legacy) > 0 && len(other) > 0 {
			say(Finding{
				Text:     "legacy iptables and nftables both filter what comes in",
				Evidence: append(legacy[:1:1], other[0]),
				Mend:     []string{"iptables-legacy-save > rules; iptables-nft-restore < rules; then flush the legacy tables"},
				Undo:     []string{"iptables-legacy-restore < rules"},
			})
		}
	},
}

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
