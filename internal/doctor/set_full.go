package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/prove/check"
)

var setFull = Check{
	ID:    "set-full",
	What:  "a set that rules ask holds as many entries as it may: no more are taken",
	Least: check.Warning,
	Why: `A hash of ipset takes 65,536 entries unless it was made for more (maxelem), and a set of
nftables what its size says. Whoever adds one more, such as fail2ban or a script with a list
that grew, is refused, and what was to be banned is not. Of sets of nftables, those are looked
at that rules fill or whose entries end by themselves; of ipset not those with forceadd, which
make room.`,
	Fix: `A larger one. ipset: create it under another name, "ipset swap" both, destroy the old one.
nftables: the set anew with a larger size, in one transaction with the rules.`,
	Undo: "Swap the sets back.",
	look: func(s *Seen, say func(Finding)) {
		s.eachSet(func(r *importer.Ruleset, set importer.Set, from string) {
			if set.Most == 0 || set.Entries < set.Most || r.Tool == "nft" && !set.Fills {
				return
			}
			f := Finding{
				Text:     fmt.Sprintf("the set %s holds %s entries and may hold no more", set.Name, english.Grouped(uint64(set.Entries))), //nolint:gosec // a count
				Evidence: []Evidence{found(from, "%s, %d of at most %d entries", set.Type, set.Entries, set.Most)},
				Fix:      []string{"the set anew, with a larger size"},
			}
			if r.Tool != "nft" {
				f.Fix = []string{fmt.Sprintf("ipset save %s | sed 's/ maxelem [0-9]*/ maxelem %d/; s/^\\(create\\|add\\) %s /\\1 larger /' | ipset restore && ipset swap larger %s && ipset destroy larger", set.Name, 4*set.Most, set.Name, set.Name)}
			}
			say(f)
		})
	},
}
