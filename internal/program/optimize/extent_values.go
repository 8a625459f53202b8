package optimize

import (
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

func familiesOf(a addrset.Set) extent {
	out := extent{kind: ofNumbers}
	if a.Has4() {
		out.numbers = append(out.numbers, program.NumberRange{From: 4, To: 4})
	}
	if a.Has6() {
		out.numbers = append(out.numbers, program.NumberRange{From: 6, To: 6})
	}
	return out
}

func extentOfValues(names []string, numbers []program.NumberRange, addresses []addrset.Range) extent {
	switch {
	case len(names) > 0:
		return extent{kind: ofNames, names: names}
	case len(numbers) > 0:
		return extent{kind: ofNumbers, numbers: program.MergeNumbers(numbers)}
	}
	return extent{kind: ofAddresses, addresses: addrset.Of(addresses...)}
}

func (a extent) complement() extent {
	switch a.kind {
	case ofAddresses:
		a.addresses = a.addresses.Complement()
	case ofNumbers:
		a.numbers = otherNumbers(a.numbers)
	default:
		a.not = !a.not
	}
	return a
}

// extentOfSet is everything in a static set of one key.
func (f *facts) extentOfSet(set *program.Set) extent {
	if e, known := f.extents[set.ID]; known {
		return e
	}
	e := extentOfPart(set, 0)
	f.extents[set.ID] = e
	return e
}

// extentOfPart is every value that one part of a set's elements has.
func extentOfPart(set *program.Set, part int) extent {
	var names []string
	var numbers []program.NumberRange
	var b addrset.Builder
	for _, e := range set.Elements {
		switch v := e.Parts[part]; {
		case v.Name != "":
			names = append(names, v.Name)
		case v.Addresses.From.IsValid():
			b.AddRange(addrset.Range{From: v.Addresses.From, To: v.Addresses.To})
		default:
			numbers = append(numbers, v.Numbers)
		}
	}
	if isAddress(set.Key[part]) {
		return extent{kind: ofAddresses, addresses: b.Set().Union(set.Addresses)}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return extent{kind: ofNames, names: slices.Compact(names)}
	}
	return extent{kind: ofNumbers, numbers: program.MergeNumbers(numbers)}
}
