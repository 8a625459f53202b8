package doctor

import (
	"fmt"
	"math"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/importer"
	"sluice/internal/prove/check"
)

var setKind = Check{
	ID:    "set-kind",
	What:  "another kind of set would cost less",
	Least: check.Remark,
	Why: `A hash of prefixes (hash:net of ipset) needs one look-up for each prefix length that is in it;
from 24 lengths, the tree of an interval set of nftables costs less. Conversely, an interval
set with only single addresses costs one more step each time its size doubles, while a hash (a
set without "flags interval") costs one. Reported from 1,024 addresses. If prefixes will be
added later, keep the set as it is.`,
	Fix:  "Use the other kind, unless something needs this one.",
	Undo: "Create the set as it was.",
	look: func(s *Seen, say func(Finding)) {
		s.eachSet(func(_ *importer.Ruleset, set importer.Set, from string) {
			switch {
			case set.Lengths >= manyLengths && strings.HasPrefix(set.Type, "hash:"):
				say(Finding{
					Text:     fmt.Sprintf("the set %s has prefixes of %d lengths, and each packet needs a look-up for each length", set.Name, set.Lengths),
					Evidence: []Evidence{found(from, "%s, %d entries of %d lengths", set.Type, set.Entries, set.Lengths)},
					Cost:     fmt.Sprintf("about %.0f ns for each packet that is not in it", lengthNS*float64(set.Lengths)),
					Fix:      []string{"an interval set of nftables; or prefixes of fewer lengths: two /25 cost less than a /24 of its own length"},
				})
			case set.Ranges && set.Single && set.Entries >= manySingle:
				say(Finding{
					Text:     fmt.Sprintf("the set %s is made for ranges, but has only single addresses: %s", set.Name, english.Grouped(uint64(set.Entries))), //nolint:gosec // a count
					Evidence: []Evidence{found(from, "%s, flags interval, no range among its elements", set.Type)},
					Cost:     fmt.Sprintf("about %.0f ns more than a hash, for each packet that is looked up", doublingNS*math.Log2(float64(set.Entries))),
					Fix:      []string{"the set without flags interval, if nobody adds prefixes to it"},
				})
			}
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
