package main

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// mutated is the text with a few things done to it that people and editors do: mostly
// the language then refuses it.
func mutated(r *rand.Rand, text string) string {
	for range 1 + r.IntN(2)*r.IntN(3) {
		text = mutation(r, text)
	}
	return text
}

func mutation(r *rand.Rand, text string) string {
	lines := strings.SplitAfter(text, "\n")
	i := r.IntN(len(lines))
	j := r.IntN(len(lines))
	switch r.IntN(12) {
	case 0: // a line is gone
		return strings.Join(slices.Delete(lines, i, i+1), "")
	case 1: // twice
		return strings.Join(slices.Insert(lines, i, lines[i]), "")
	case 2: // elsewhere
		lines[i], lines[j] = lines[j], lines[i]
		return strings.Join(lines, "")
	case 3: // further in, or out
		if r.IntN(2) == 0 {
			lines[i] = "  " + lines[i]
		} else {
			lines[i] = strings.TrimPrefix(lines[i], "  ")
		}
		return strings.Join(lines, "")
	case 4: // a character is gone, or another
		if len(text) == 0 {
			return text
		}
		at := r.IntN(len(text))
		some := []string{"", "", "\t", "\"", ":", "\x00", "\u202e", "é", "7", ",", "[", "}", "\r"}
		return text[:at] + some[r.IntN(len(some))] + text[at+1:]
	}
	places := word.FindAllStringIndex(text, -1)
	if len(places) == 0 {
		return text
	}
	at, other := places[r.IntN(len(places))], places[r.IntN(len(places))]
	if other[0] < at[0] {
		at, other = other, at
	}
	one, two := text[at[0]:at[1]], text[other[0]:other[1]]
	switch put := vocabulary()[r.IntN(len(vocabulary()))]; r.IntN(6) {
	case 0: // a word is gone
		return text[:at[0]] + text[at[1]:]
	case 1: // two change places
		if at[0] != other[0] {
			return text[:at[0]] + two + text[at[1]:other[0]] + one + text[other[1]:]
		}
		return text
	case 2: // misspelt
		k := r.IntN(len(one))
		return text[:at[0]] + one[:k] + one[k+1:] + text[at[1]:]
	case 3: // one more
		return text[:at[1]] + " " + put + text[at[1]:]
	case 4: // what is written elsewhere
		return text[:at[0]] + two + text[at[1]:]
	default:
		return text[:at[0]] + put + text[at[1]:]
	}
}
