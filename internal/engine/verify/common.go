package verify

import (
	"cmp"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// common is what all packets of some classes have in common, on one line: for each
// field of which they have not all values, those that they have.
func common(classes []reach.Class) string {
	if len(classes) == 0 {
		return ""
	}
	var parts []string
	for _, f := range classes[0].Fields {
		values := []reach.FieldValues{f}
		for _, c := range classes[1:] {
			v, bound := c.Values(f.Field)
			if !bound {
				values = nil
				break
			}
			values = append(values, v)
		}
		if text := together(values); text != "" {
			parts = append(parts, text)
		}
	}
	return fieldsText(parts)
}

// together is the values of one field in several classes; "" where they are all that
// there are.
func together(values []reach.FieldValues) string {
	if len(values) == 0 {
		return ""
	}
	all := values[0]
	all.Names, all.Numbers = slices.Clone(all.Names), slices.Clone(all.Numbers)
	for _, v := range values[1:] {
		if all.Other || v.Other {
			if fieldText(all) != fieldText(v) {
				return ""
			}
			continue
		}
		all.Addresses = all.Addresses.Union(v.Addresses)
		all.Numbers = append(all.Numbers, v.Numbers...)
		for _, n := range v.Names {
			if !slices.Contains(all.Names, n) {
				all.Names = append(all.Names, n)
			}
		}
	}
	if isAddress(all.Field) && all.Addresses.Complement().IsEmpty() || strings.Contains(string(all.Field), ":") && len(all.Names) > 1 {
		return ""
	}
	all.Numbers = joined(all.Numbers)
	return fieldText(all)
}

// joined are ranges of numbers, sorted, as few as there can be.
func joined(list []program.NumberRange) []program.NumberRange {
	sorting.By(list, func(a, b program.NumberRange) int { return cmp.Compare(a.From, b.From) })
	var out []program.NumberRange
	for _, r := range list {
		if n := len(out); n > 0 && r.From <= out[n-1].To+1 {
			out[n-1].To = max(out[n-1].To, r.To)
			continue
		}
		out = append(out, r)
	}
	return out
}
