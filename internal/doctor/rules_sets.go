package doctor

import (
	"fmt"
	"math"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/prove/check"
)

// eachSet tells of the sets of all rulesets, of those that several name once.
func (s *Seen) eachSet(tell func(r *importer.Ruleset, set importer.Set, from string)) {
	told := map[string]bool{}
	for _, r := range s.Rules {
		for _, set := range r.Sets {
			from := "ipset list " + set.Name
			if r.Tool == "nft" {
				from = fmt.Sprintf("nft list set %s %s %s", r.Family, r.Table, set.Name)
			}
			if !told[from] {
				told[from] = true
				tell(r, set, from)
			}
		}
	}
}

var setFull = Check{
	ID:    "set-full",
	What:  "a set that rules ask holds as many entries as it may: no more are taken",
	Least: check.Warning,
	Why: `A hash of ipset takes 65,536 entries unless it was made for more (maxelem), and a set of
nftables what its size says. Whoever adds one more, such as fail2ban or a script with a list
that grew, is refused, and what was to be banned is not. Of sets of nftables, those are looked
at that rules fill or whose entries end by themselves; of ipset not those with forceadd, which
make room.`,
	Mend: `A larger one. ipset: create it under another name, "ipset swap" both, destroy the old one.
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
				Mend:     []string{"the set anew, with a larger size"},
			}
			if r.Tool != "nft" {
				f.Mend = []string{fmt.Sprintf("ipset save %s | sed 's/ maxelem [0-9]*/ maxelem %d/; s/^\\(create\\|add\\) %s /\\1 larger /' | ipset restore && ipset swap larger %s && ipset destroy larger", set.Name, 4*set.Most, set.Name, set.Name)}
			}
			say(f)
		})
	},
}

const (
	manyLengths = 24   // of prefixes, in a hash
	manySingle  = 1024 // addresses, in a tree
	// Of 8,000 entries that a packet is in none of, on kernel 6.18: a hash:net of 17 lengths
	// beside one of a single length (949 and 1,660 ns), and an interval set beside a hash
	// (945 and 1,505 ns), by sluice-lab bench packet.
	lengthNS, doublingNS = 40.0, 43.0
)

var setKind = Check{
	ID:    "set-kind",
	What:  "a set is of a kind that costs more than another one would",
	Least: check.Remark,
	Why: `A hash of prefixes (hash:net of ipset) is looked up once for each length of prefix that is
in it; from 24 lengths on, the tree of an interval set of nftables costs less. The other way
round, an interval set that has only single addresses costs a step for each time that its size
doubles, where a hash, which a set without "flags interval" is, costs one. Said from 1,024
addresses on. Whoever adds prefixes to it later needs it as it is.`,
	Mend: "The other kind, where nobody needs this one.",
	Undo: "Make the set as it was.",
	look: func(s *Seen, say func(Finding)) {
		s.eachSet(func(_ *importer.Ruleset, set importer.Set, from string) {
			switch {
			case set.Lengths >= manyLengths && strings.HasPrefix(set.Type, "hash:"):
				say(Finding{
					Text:     fmt.Sprintf("the set %s has prefixes of %d lengths, and a packet is looked up once for each", set.Name, set.Lengths),
					Evidence: []Evidence{found(from, "%s, %d entries of %d lengths", set.Type, set.Entries, set.Lengths)},
					Cost:     fmt.Sprintf("some %.0f ns for each packet that is not in it", lengthNS*float64(set.Lengths)),
					Mend:     []string{"an interval set of nftables; or prefixes of fewer lengths: two /25 for a /24 cost less than a length of their own"},
				})
			case set.Ranges && set.Single && set.Entries >= manySingle:
				say(Finding{
					Text:     fmt.Sprintf("the set %s is made for ranges and has %s single addresses", set.Name, english.Grouped(uint64(set.Entries))), //nolint:gosec // a count
					Evidence: []Evidence{found(from, "%s, flags interval, no range among its elements", set.Type)},
					Cost:     fmt.Sprintf("some %.0f ns more than a hash, for each packet that is looked up", doublingNS*math.Log2(float64(set.Entries))),
					Mend:     []string{"the set without flags interval, where nobody adds prefixes to it"},
				})
			}
		})
	},
}
