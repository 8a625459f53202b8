package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var establishedLate = Check{
	ID:    "established-late",
	What:  "packets of known connections pass many rules before one accepts them",
	Least: check.Warning,
	Why: `Nearly all packets of a host belong to known connections. If the rule that accepts them is not
the first, each of them is compared with all rules before it. The doctor evaluates a packet of
an established connection to port 40000, and reports from 20 rules in one chain and the chains
that it jumps to. Chains before connection tracking (raw), chains that mark (mangle) and chains
of NAT are left out: they cannot know the connection, or must not end its evaluation.`,
	Fix:  `Put "ct state established,related accept" first in the chain.`,
	Undo: "Move the rule back.",
	look: func(s *Seen, say func(Finding)) {
		for _, c := range Costs(s.Rules) {
			if c.Known.Rules < lateRules || !c.filters() || c.Hook != program.Prerouting && c.Hook != program.Input {
				continue
			}
			fix, undo := letKnown(c.of, c.base.Kind, c.base.Chain)
			say(Finding{
				Text:     fmt.Sprintf("a packet of a known connection is evaluated by %s of %s", english.Plural(c.Known.Rules, "rule"), c.Text()),
				Evidence: []Evidence{found(c.Ruleset, "tcp from %s:%d to port %d, established: %s evaluated", CostFrom[c.FamilyOf()], CostFromPort, CostToPort, english.Plural(c.Known.Rules, "rule"))},
				Cost:     fmt.Sprintf("about %.0f ns for each packet", c.Known.NS),
				Fix:      fix,
				Undo:     undo,
			})
		}
	},
}
