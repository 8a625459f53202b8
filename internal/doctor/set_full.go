package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/prove/check"
)

var setFull = Check{
	ID:    "set-full",
	What:  "a set that rules look up is full: it takes no more entries",
	Least: check.Warning,
	Why: `A hash of ipset takes 65,536 entries unless it was made for more (maxelem); a set of nftables
as many as its size says. Further entries are refused, for example those of fail2ban or of a
script whose list grew, so what was to be banned is not. Of the sets of nftables, the doctor
looks at those that rules fill and those whose entries expire; of ipset, at all but those with
forceadd, which make room.`,
	Fix: `A larger set. ipset: create it under another name, "ipset swap" the two, destroy the old one.
nftables: create the set again with a larger size, in one transaction with the rules.`,
	Undo: "Swap the sets back.",
	look: func(s *Seen, say func(Finding)) {
		s.eachSet(func(r *importer.Ruleset, set importer.Set, from string) {
			if set.Most == 0 || set.Entries < set.Most || r.Tool == "nft" && !set.Fills {
				return
			}
			f := Finding{
				Text:     fmt.Sprintf("the set %s is full: %s entries", set.Name, english.Grouped(uint64(set.Entries))), //nolint:gosec // a count
				Evidence: []Evidence{found(from, "%s, %d of at most %d entries", set.Type, set.Entries, set.Most)},
				Fix:      []string{"create the set again, with a larger size"},
			}
			if r.Tool != "nft" {
				f.Fix = []string{fmt.Sprintf("ipset save %s | sed 's/ maxelem [0-9]*/ maxelem %d/; s/^\\(create\\|add\\) %s /\\1 larger /' | ipset restore && ipset swap larger %s && ipset destroy larger", set.Name, 4*set.Most, set.Name, set.Name)}
			}
			say(f)
		})
	},
}
