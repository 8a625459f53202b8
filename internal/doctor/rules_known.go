package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/importer"
	"sluice/internal/program"
)

// trackedFrom is the priority at which connection tracking looks at what comes in by
// prerouting or output (NF_IP_PRI_CONNTRACK); a chain before it knows no connection.
const trackedFrom = -200

// letKnown are commands that let packets of known connections through a base chain of a ruleset
// before any other rule of it, and what takes that back.
func letKnown(r *importer.Ruleset, kind program.HookKind, chain string) (fix, undo []string) {
	i := slices.IndexFunc(r.Program.Hooks, func(h program.Hook) bool { return h.Kind == kind && h.Chain == chain })
	if i < 0 {
		return nil, nil
	}
	b := r.Bases[i]
	before := kind == program.Ingress || b.Priority < trackedFrom && (kind == program.Prerouting || kind == program.Output)
	switch {
	case r.Table != "" && before:
		return []string{fmt.Sprintf("give chain %s the priority -150: at %d it comes before connection tracking, where no rule can match its connection", b.Chain, b.Priority)}, nil
	case r.Table != "":
		return []string{fmt.Sprintf("nft insert rule %s %s %s ct state established,related accept", r.Family, r.Table, b.Chain)},
			[]string{fmt.Sprintf("nft delete rule %s %s %s handle N   # N: see nft -a list chain %[1]s %s %s", r.Family, r.Table, b.Chain)}
	case before:
		return []string{fmt.Sprintf("move these rules to table mangle: %s comes before connection tracking, where no rule can match its connection", b.Table)}, nil
	}
	command := toolOf(r)
	if b.Table != "filter" {
		command += " -t " + b.Table
	}
	rule := b.Chain + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	return []string{command + " -I " + rule}, []string{command + " -D " + rule}
}
