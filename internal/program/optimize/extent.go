package optimize

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// extent is a set of values of one field: addresses, numbers or names. A packet
// that lacks the field has no value in any.
type extent struct {
	kind      extentKind
	addresses addrset.Set
	numbers   []program.NumberRange // sorted, apart
	names     []string
	not       bool // names: every name but these
}

type extentKind uint8

const (
	ofAddresses extentKind = iota + 1
	ofNumbers
	ofNames
)

// meets says whether a value may be in both; true where that cannot be told.
func (a extent) meets(b extent) bool {
	if a.kind != b.kind {
		return true
	}
	switch a.kind {
	case ofAddresses:
		return a.addresses.Overlaps(b.addresses)
	case ofNumbers:
		return numbersMeet(a.numbers, b.numbers)
	}
	switch {
	case a.not && b.not:
		return true
	case a.not:
		return !namesInside(b.names, a.names)
	case b.not:
		return !namesInside(a.names, b.names)
	}
	return slices.ContainsFunc(a.names, func(x string) bool {
		return slices.ContainsFunc(b.names, func(y string) bool { return namesMeet(x, y) })
	})
}

// inside says whether every value of a is in b; false where that cannot be told.
func (a extent) inside(b extent) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case ofAddresses:
		return b.addresses.ContainsSet(a.addresses)
	case ofNumbers:
		return numbersInside(a.numbers, b.numbers)
	}
	switch {
	case a.not && b.not:
		return namesInside(b.names, a.names)
	case a.not:
		return false
	case b.not:
		return !slices.ContainsFunc(a.names, func(n string) bool {
			return slices.ContainsFunc(b.names, func(o string) bool { return namesMeet(n, o) })
		})
	}
	return namesInside(a.names, b.names)
}

func (a extent) empty() bool {
	switch a.kind {
	case ofAddresses:
		return a.addresses.IsEmpty()
	case ofNumbers:
		return len(a.numbers) == 0
	}
	return !a.not && len(a.names) == 0
}

// and gives what is in both; of names the smaller where one has the other, and
// the first where that cannot be told, which is too much and never too little.
func (a extent) and(b extent) extent {
	switch {
	case a.kind != b.kind:
	case a.kind == ofAddresses:
		a.addresses = a.addresses.Intersect(b.addresses)
	case a.kind == ofNumbers:
		a.numbers = numbersBoth(a.numbers, b.numbers)
	case !a.meets(b):
		return extent{kind: ofNames}
	case b.inside(a):
		return b
	}
	return a
}

// namesInside says whether every name is one of the others.
func namesInside(names, others []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool {
		return !slices.ContainsFunc(others, func(o string) bool { return nameInside(n, o) })
	})
}

func nameInside(name, in string) bool {
	prefix, wildcard := strings.CutSuffix(in, "*")
	return name == in || wildcard && strings.HasPrefix(name, prefix)
}

func namesMeet(a, b string) bool {
	p, wildA := strings.CutSuffix(a, "*")
	q, wildB := strings.CutSuffix(b, "*")
	if wildA && wildB {
		return strings.HasPrefix(p, q) || strings.HasPrefix(q, p)
	}
	return nameInside(a, b) || nameInside(b, a)
}

func otherNumbers(in []program.NumberRange) []program.NumberRange {
	var out []program.NumberRange
	next := uint64(0)
	for _, r := range in {
		if r.From > next {
			out = append(out, program.NumberRange{From: next, To: r.From - 1})
		}
		if r.To == ^uint64(0) {
			return out
		}
		next = r.To + 1
	}
	return append(out, program.NumberRange{From: next, To: ^uint64(0)})
}

func numbersMeet(a, b []program.NumberRange) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].To < b[0].From:
			a = a[1:]
		case b[0].To < a[0].From:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

func numbersBoth(a, b []program.NumberRange) []program.NumberRange {
	var out []program.NumberRange
	for len(a) > 0 && len(b) > 0 {
		from, to := max(a[0].From, b[0].From), min(a[0].To, b[0].To)
		if from <= to {
			out = append(out, program.NumberRange{From: from, To: to})
		}
		if a[0].To < b[0].To {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

func numbersInside(a, b []program.NumberRange) bool {
	for _, r := range a {
		for len(b) > 0 && b[0].To < r.From {
			b = b[1:]
		}
		if len(b) == 0 || r.From < b[0].From || r.To > b[0].To {
			return false
		}
	}
	return true
}
