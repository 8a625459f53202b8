// Package english counts and lists things for a reader. Callers: everything that prints or
// describes.
package english

import (
	"fmt"
	"strings"
	"time"
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
	case strings.HasSuffix(word, "s"), strings.HasSuffix(word, "x"):
		return word + "es"
	case strings.HasSuffix(word, "ry"):
		return strings.TrimSuffix(word, "y") + "ies"
	}
	return word + "s"
}

const day = 24 * time.Hour

// Duration leaves out the seconds and minutes that are none, and counts whole days from two
// on: 1h5m, 10m, 24h, 7d, as policies write it.
func Duration(d time.Duration) string {
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String() // 1h0m0s
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// Span is how long something lasts, or is ago: to the second, from two days on to the hour.
func Span(d time.Duration) string {
	if d < 2*day {
		return Duration(max(d, 0).Truncate(time.Second))
	}
	d = d.Round(time.Hour)
	if hours := d % day; hours > 0 {
		return fmt.Sprintf("%dd%dh", d/day, hours/time.Hour)
	}
	return Duration(d)
}

// Moment is a time in a text that is read anywhere; what a command prints itself is in the local
// time of its reader.
func Moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// List joins words as a sentence does: "a", "a and b", "a, b and c".
func List(words []string) string {
	n := len(words)
	if n < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
}

// Few is List of the first of many words, and how many more there are.
func Few(words []string, most int) string {
	if len(words) > most {
		words = append(words[:most:most], fmt.Sprintf("%d more", len(words)-most))
	}
	return List(words)
}

// Grouped is a number that is not negative, with a comma between thousands.
func Grouped[N int | uint64](n N) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Sentence is a text that begins with a capital letter; it has one byte or more.
func Sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// Wrapped breaks a text into lines that a terminal shows whole.
func Wrapped(text string) string {
	const width = 80
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
