package nftables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// numberValue writes an inclusive range of numbers as a value.
func numberValue(r program.NumberRange) string {
	if r.From == r.To {
		return strconv.FormatUint(r.From, 10)
	}
	return strconv.FormatUint(r.From, 10) + "-" + strconv.FormatUint(r.To, 10)
}

func parseNumberValue(v string) (program.NumberRange, bool) {
	from, to, two := strings.Cut(v, "-")
	a, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return program.NumberRange{}, false
	}
	if !two {
		return program.NumberRange{From: a, To: a}, true
	}
	b, err := strconv.ParseUint(to, 10, 64)
	return program.NumberRange{From: a, To: b}, err == nil && a <= b
}

// numberValues gives the values of ranges: sorted, merged.
func numberValues(ranges []program.NumberRange) []string {
	merged := program.MergeNumbers(ranges)
	out := make([]string, len(merged))
	for i, r := range merged {
		out[i] = numberValue(r)
	}
	return out
}

// addressValues gives the values of a set of addresses.
func addressValues(s addrset.Set) []string {
	var out []string
	for r := range s.Each() {
		out = append(out, r.String())
	}
	return out
}

func addressSet(ranges []addrset.Range) (addrset.Set, error) {
	var b addrset.Builder
	for _, r := range ranges {
		checked, err := addrset.NewRange(r.From, r.To)
		if err != nil {
			return addrset.Set{}, fmt.Errorf("address range %s-%s: %w", r.From, r.To, err)
		}
		b.AddRange(checked)
	}
	return b.Set(), nil
}

// normalValues brings values in any order and cut into one form: sorted and
// merged where they are numbers or addresses.
func normalValues(values []string) []string {
	numbers := make([]program.NumberRange, 0, len(values))
	for _, v := range values {
		r, ok := parseNumberValue(v)
		if !ok {
			numbers = nil
			break
		}
		numbers = append(numbers, r)
	}
	if len(numbers) > 0 {
		return numberValues(numbers)
	}
	var b addrset.Builder
	for i, v := range values {
		if v == "" || !strings.ContainsAny(v, ".:") || strings.Contains(v, " . ") {
			break
		}
		r, err := addrset.ParseRange(v)
		if err != nil {
			break
		}
		b.AddRange(r)
		if i == len(values)-1 {
			return addressValues(b.Set())
		}
	}
	out := slices.Clone(values)
	slices.Sort(out)
	return slices.Compact(out)
}
