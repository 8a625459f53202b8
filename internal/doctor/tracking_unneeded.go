package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var trackingUnneeded = Check{
	ID:    "tracking-unneeded",
	What:  "connections are tracked, but no rule decides anything by their state",
	Least: check.Remark,
	Why: `The kernel tracks every connection of a network namespace as soon as one rule is loaded that
matches connection state or translates addresses, even in a chain that nothing jumps to:
leftover rules are enough. Each packet is then looked up in the connection table, each new one
takes an entry, and a full table drops packets. Reported if connections are tracked and no base
chain both matches their state and refuses, translates or changes anything. An empty nat table
does not start tracking. Not checked while a policy of Sluice is loaded.`,
	Fix:  "Delete these rules: tracking ends with the last of them.",
	Undo: "Load the previous rules: save them first by iptables-save or nft list ruleset.",
	look: func(s *Seen, say func(Finding)) {
		if s.Table == nil || s.Table.Entries == 0 || s.Own {
			return
		}
		var begun []Evidence
		rules := 0
		for _, r := range s.Rules {
			for _, h := range r.Program.Hooks {
				if needsTracking(r, h) {
					return
				}
			}
			for _, rule := range tracking(r) {
				if rules++; len(begun) < mostTop {
					begun = append(begun, found(toolOf(r), "chain %s, rule %d: %s", rule.Chain, rule.Number, clip(rule.Text)))
				}
			}
		}
		if rules == 0 {
			return // who else has it tracked is not known
		}
		say(Finding{
			Text:     fmt.Sprintf("connections are tracked (%s now), but no rule decides anything by their state; rules that start tracking: %d", english.Grouped(s.Table.Entries), rules),
			Evidence: append([]Evidence{found("/proc/sys/net/netfilter/nf_conntrack_count", "%s", english.Plural(s.Table.Entries, "entry"))}, begun...),
			Cost:     fmt.Sprintf("a look-up for each packet, and %s of memory", bytesText(s.Table.memory(s.Table.Entries, 0))),
			Fix:      []string{"delete these rules: nft delete rule, iptables -D; tracking ends with the last of them"},
		})
	},
}

// stateful are words of nft for which the kernel tracks connections.
var stateful = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^| )(ct [a-z]|masquerade|redirect|[sd]nat )`) })

// tracking are the rules for which the kernel tracks connections, by chain and number.
// Chains of nftables that nothing leads to are in no program.
func tracking(r *importer.Ruleset) (out []*importer.Rule) {
	in := map[string]bool{}
	for _, c := range r.Program.Chains {
		for i := range c.Rules {
			in[c.Rules[i].ID] = in[c.Rules[i].ID] || tracks(&c.Rules[i])
		}
	}
	for id, rule := range r.Rules {
		does, said := in[id]
		if does || !said && r.Tool == "nft" && stateful().MatchString(rule.Text) {
			out = append(out, rule)
		}
	}
	sorting.By(out, func(a, b *importer.Rule) int {
		return cmp.Or(strings.Compare(a.Chain, b.Chain), cmp.Compare(a.Number, b.Number))
	})
	return out
}

// tracks says that the kernel tracks connections for a rule.
func tracks(r *program.Rule) bool {
	return slices.ContainsFunc(r.Match, func(c program.Condition) bool {
		return slices.ContainsFunc(append([]program.Field{c.Field}, c.SetKey...), program.Tracked)
	}) || slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		return e.Tracks || e.Labels != ""
	})
}

// needsTracking says that a base chain, with what it leads to, asks for the state of
// connections or may, and does more to packets than to accept and to count them.
func needsTracking(r *importer.Ruleset, h program.Hook) bool {
	asks, does := false, h.Default == program.Drop
	for _, c := range chainsFrom(r.Program, h.Chain) {
		for i := range c.Rules {
			rule := &c.Rules[i]
			asks = asks || tracks(rule)
			of := r.Rules[rule.ID]
			if of == nil || !of.Whole {
				return true
			}
			for _, a := range rule.Actions {
				e := program.EffectOf(a)
				harmless := e.Decides == program.Accept || e.Decides == program.Return || e.Calls != "" || e.Goes != "" || e.Counts != ""
				does = does || !harmless
			}
		}
	}
	return asks && does
}
