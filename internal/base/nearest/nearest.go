// Package nearest guesses which name a word was meant to be. cli calls it for commands
// and flags, explain for what a question names.
package nearest

import (
	"slices"

	"github.com/agext/levenshtein"
)

// Of is the one of names that a word was probably meant to be, or "".
func Of(word string, names []string) string {
	best, most := "", 1+max(1, min(len(word)/3, 3))
	for _, name := range slices.Sorted(slices.Values(names)) {
		if d := levenshtein.Distance(word, name, nil); d < most {
			best, most = name, d
		}
	}
	return best
}
