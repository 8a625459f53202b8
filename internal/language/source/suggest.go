package source

import "sluice/internal/base/nearest"

// DidYouMean returns `, did you mean "x"?` or "".
func DidYouMean(word string, names []string) string {
	if n := nearest.Of(word, names); n != "" {
		return `, did you mean "` + n + `"?`
	}
	return ""
}
