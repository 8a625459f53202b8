package doctor

import (
	"fmt"

	"sluice/internal/importer"
)

// eachSet reports the sets of all rulesets, of those that several name once.
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
