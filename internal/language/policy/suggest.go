package policy

import "sluice/internal/base/nearest"

// didYouMean returns `, did you mean "x"?` or "".
func didYouMean(word string, names []string) string {
	if n := nearest.Of(word, names); n != "" {
		return `, did you mean "` + n + `"?`
	}
	return ""
}
