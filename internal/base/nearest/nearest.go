// Package nearest guesses which name a word was meant to be. Callers: whatever reads
// words of people: policy, the commands, check, explain, and optimize for its passes.
package nearest

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// Of is the one of names that a word was most likely meant to be, or "". Of two that
// are as near it is the first by the alphabet; the word itself is never one.
func Of(word string, names []string) string {
	if len(word) > 64 {
		return ""
	}
	lower := strings.ToLower(word)
	best, bestDistance := "", 1+max(1, min(len(word)/3, 3))
	for _, name := range slices.Sorted(slices.Values(names)) {
		d := levenshtein.Distance(lower, strings.ToLower(name), nil)
		if d == 0 && word == name {
			continue
		}
		if swapped(lower, name) || singular(lower) == singular(name) {
			d = 1
		}
		if d < bestDistance && d < len(name) {
			best, bestDistance = name, d
		}
	}
	return best
}

// singular takes the ending of many things off.
func singular(word string) string {
	if stem, is := strings.CutSuffix(word, "ies"); is {
		return stem + "y"
	}
	return strings.TrimSuffix(word, "s")
}

// swapped reports whether two neighbouring letters of a changed places, which
// is one slip of the fingers but two edits.
func swapped(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i+1 < len(a); i++ {
		if a[i] != b[i] {
			return a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
		}
	}
	return false
}
