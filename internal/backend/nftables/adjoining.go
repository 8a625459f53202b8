package nftables

import (
	"errors"
	"math"
	"slices"
	"strings"

	"sluice/internal/program"
)

// adjoining are parts of one header of which nft asks two single values at once, by one
// comparison (stmt_reduce of nft 1.0.6; it takes neither addresses nor parts with a
// mask), and the greatest value of the second. No other two that are asked here are so:
// addresses, flags and the hop limit are compared each by itself.
var adjoining = []struct {
	first, second string
	most          uint64
}{{"sport", "dport", math.MaxUint16}, {"type", "code", math.MaxUint8}}

func asksPart(s Statement, part string) bool {
	_, of, _ := strings.Cut(s.Field, " ")
	return s.Kind == Match && of == part
}

// unmerged writes the second of two fields side by side, of which neither is to have one
// value, as all its other values: nft asks two "!=" at once too, wherever in the rule
// they are, and then either of them suffices.
func unmerged(way []Statement) {
	for _, pair := range adjoining {
		if !slices.ContainsFunc(way, func(s Statement) bool { _, is := notOne(s, pair.first); return is }) {
			continue
		}
		for i := range way {
			n, is := notOne(way[i], pair.second)
			if !is {
				continue
			}
			var others []program.NumberRange
			if n > 0 {
				others = append(others, program.NumberRange{From: 0, To: n - 1})
			}
			if n < pair.most {
				others = append(others, program.NumberRange{From: n + 1, To: pair.most})
			}
			way[i].Op, way[i].Values = "==", numberValues(others)
		}
	}
}

// notOne gives the single value that a part of a header is not to have.
func notOne(s Statement, part string) (uint64, bool) {
	if !asksPart(s, part) || s.Op != "!=" || s.Mask != "" || len(s.Values) != 1 {
		return 0, false
	}
	n, is := parseNumberValue(s.Values[0])
	return n.From, is && n.From == n.To
}

var errEither = errors.New("nft lists it alike where both are asked and where either suffices")

// eitherNot gives a statement of a rule in the kernel of which the listing does not say
// whether it is compared by itself.
func eitherNot(statements []Statement) (Statement, bool) {
	for _, pair := range adjoining {
		is := func(part string) func(Statement) bool {
			return func(s Statement) bool { _, not := notOne(s, part); return not }
		}
		if at := slices.IndexFunc(statements, is(pair.second)); at >= 0 && slices.ContainsFunc(statements, is(pair.first)) {
			return statements[at], true
		}
	}
	return Statement{}, false
}
