package doctor

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/importer"
	"sluice/internal/program"
)

// trackedFrom is the priority at which connection tracking looks at what comes in by
// prerouting or output (NF_IP_PRI_CONNTRACK); a chain before it knows no connection.
const trackedFrom = -200

// letKnown are commands that let packets of known connections through a base chain of a ruleset
// before any other rule of it, and what takes that back.
func letKnown(r *importer.Ruleset, kind program.HookKind, chain string) (mend, undo []string) {
	i := slices.IndexFunc(r.Program.Hooks, func(h program.Hook) bool { return h.Kind == kind && h.Chain == chain })
	if i < 0 {
		return nil, nil
	}
	b := r.Bases[i]
	before := kind == program.Ingress || b.Priority < trackedFrom && (kind == program.Prerouting || kind == program.Output)
	switch {
	case r.Table != "" && before:
		return []string{fmt.Sprintf("give chain %s the priority -150: at %d it comes before connection tracking, where no rule knows a connection", b.Chain, b.Priority)}, nil
	case r.Table != "":
		return []string{fmt.Sprintf("nft insert rule %s %s %s ct state established,related accept", r.Family, r.Table, b.Chain)},
			[]string{fmt.Sprintf("nft delete rule %s %s %s handle N   # N as nft -a list chain %[1]s %s %s says", r.Family, r.Table, b.Chain)}
	case before:
		return []string{fmt.Sprintf("move these rules to table mangle: %s comes before connection tracking, where no rule knows a connection", b.Table)}, nil
	}
	command := toolOf(r)
	if b.Table != "filter" {
		command += " -t " + b.Table
	}
	rule := b.Chain + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	return []string{command + " -I " + rule}, []string{command + " -D " + rule}
}

// setFor says what a set asks in place of a run of rules.
func setFor(r *importer.Ruleset, u run) string {
	word := map[program.Field]string{program.Source: "saddr", program.Destination: "daddr", program.SourcePort: "sport", program.Port: "dport"}[u.field]
	if r.Table != "" {
		if words := strings.Fields(u.first.Text); slices.Index(words, word) > 0 {
			return fmt.Sprintf("one rule in their place, with %s %s { … }", words[slices.Index(words, word)-1], word)
		}
		return "one rule in their place, with a set { … }"
	}
	if word == "" {
		return "a chain of their own, and one rule that leads there what they are about"
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
	return fmt.Sprintf("ipset create NAME %s; ipset add NAME … for each; one rule in their place, with -m set --match-set NAME %s", kind, side)
}
