package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var establishedLate = Check{
	ID:    "established-late",
	What:  "packets of known connections are asked by many rules before one lets them in",
	Least: check.Warning,
	Why: `Nearly all packets of a host belong to connections that are known. Where the rule that
lets them in does not stand first, each of them is asked by all rules before it. Asked is a
packet of an established connection to port 40000; said from 20 rules of one chain on, and its
jumps. Chains that stand before connection tracking (raw), that mark (mangle) and that rewrite (nat)
are left out: what is first there cannot know the connection, or must not end the way.`,
	Fix:  `"ct state established,related accept" as the first rule of the chain.`,
	Undo: "Move the rule back.",
	look: func(s *Seen, say func(Finding)) {
		for _, c := range Costs(s.Rules) {
			if c.Known.Rules < lateRules || !c.filters() || c.Hook != program.Prerouting && c.Hook != program.Input {
				continue
			}
			fix, undo := letKnown(c.of, c.base.Kind, c.base.Chain)
			say(Finding{
				Text:     fmt.Sprintf("a packet of a known connection is asked by %s of %s", english.Plural(c.Known.Rules, "rule"), c.Text()),
				Evidence: []Evidence{found(c.Ruleset, "tcp from %s:%d to port %d, established: %s asked", CostFrom[c.FamilyOf()], CostFromPort, CostToPort, english.Plural(c.Known.Rules, "rule"))},
				Cost:     fmt.Sprintf("some %.0f ns for each packet", c.Known.NS),
				Fix:      fix,
				Undo:     undo,
			})
		}
	},
}
