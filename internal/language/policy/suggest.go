package policy

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// nearest returns the one of names that word was most likely meant to be, or
// "". Names are tried in order, so that the result does not depend on a map's.
func nearest(word string, names []string) string {
	if len(word) > 64 {
		return ""
	}
	lower := strings.ToLower(word)
	best, bestDistance := "", 1+max(1, min(len(word)/3, 3))
	names = slices.Sorted(slices.Values(names))
	for _, name := range names {
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

// didYouMean returns `, did you mean "x"?` or "".
func didYouMean(word string, names []string) string {
	if n := nearest(word, names); n != "" {
		return `, did you mean "` + n + `"?`
	}
	return ""
}
