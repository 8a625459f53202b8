// Package english counts things for a reader. Callers: everything that prints or
// describes.
package english

import (
	"fmt"
	"strings"
)

// Plural is a number with its word: "1 rule", "2 rules".
func Plural[N int | uint64](n N, word string) string {
	return fmt.Sprint(n) + " " + Noun(n, word)
}

// Noun is a word as it is behind a number.
func Noun[N int | uint64](n N, word string) string {
	switch {
	case n == 1:
		return word
	case strings.HasSuffix(word, "s"):
		return word + "es"
	case strings.HasSuffix(word, "ry"):
		return strings.TrimSuffix(word, "y") + "ies"
	}
	return word + "s"
}

// Grouped is a number that is not negative, with a comma between thousands.
func Grouped[N int | uint64](n N) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
