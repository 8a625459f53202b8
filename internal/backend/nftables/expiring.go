package nftables

import (
	"fmt"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/program"
)

// expiring makes the sets of one family of a living set that commands edit: one of single
// addresses, and one of ranges where there are some. Its name says that its elements may
// end by themselves, since the kernel does not change that of a set.
func expiring(s *program.Set, family int) []*Set {
	var b addrset.Builder
	for _, e := range s.Ends {
		b.AddRange(e.Range)
	}
	singles, wide := singly(inFamily(s.Addresses.Difference(b.Set()).Ranges(), family))
	exact, net := Elements{Addresses: addrset.Of(singles...)}, Elements{Addresses: addrset.Of(wide...)}
	for _, e := range s.Ends {
		if e.Range.From.Is4() != (family == 4) {
			continue
		}
		few, _ := singly([]addrset.Range{e.Range})
		for _, r := range few {
			exact.Ends = append(exact.Ends, addrset.Ending{Range: r, Until: e.Until})
		}
		if len(few) == 0 {
			net.Ends = append(net.Ends, e)
		}
	}
	out := []*Set{{
		Name: livingName(s.ID, family), ID: s.ID, Life: program.Living, Types: []string{addressType(family)}, Expires: true,
		Elements: exact, Comment: describe(s, family, "exact addresses, edited in place"), Origin: s.Origin,
	}}
	if net.Len() > 0 {
		k := &Set{ID: s.ID, Life: program.Static, Types: []string{addressType(family)}, Interval: true, Expires: true, Elements: net, Origin: s.Origin}
		k.Comment = describe(s, family, english.Plural(net.Len(), "element"))
		k.Name = netName(s.ID, family) + "_" + k.sealed()
		out = append(out, k)
	}
	return out
}

// endsBy says of an end that it has come by a moment, and surely.
func endsBy(until, now time.Time) bool { return !until.IsZero() && !until.After(now.Add(-slack)) }

// lastsFrom says of an end that it is to come yet, and surely.
func lastsFrom(until, now time.Time) bool { return until.IsZero() || until.After(now.Add(slack)) }

// sameEnd says whether an element of the kernel ends when it should, as closely as it
// can be told.
func sameEnd(want, have, now time.Time) bool {
	if want.IsZero() || have.IsZero() {
		return want.IsZero() && have.IsZero()
	}
	return want.Sub(have).Abs() <= slack+have.Sub(now).Abs()/1000
}

// endings gives the elements of a set with one address as key, each with its end.
func (s *Set) endings() map[addrset.Range]time.Time {
	out := map[addrset.Range]time.Time{}
	for r := range s.ranges() {
		out[r] = time.Time{}
	}
	for _, e := range s.Elements.Ends {
		out[e.Range] = e.Until
	}
	return out
}

// expiringDifference is difference for sets of which elements end by themselves. One with
// another end is missing and too much. One that is about to end may be there or not.
func expiringDifference(want, have *Set, now time.Time) (missing, extra Elements) {
	wanted, held := want.endings(), have.endings()
	for r := range have.ranges() {
		until, is := wanted[r]
		is = is && !endsBy(until, now)
		if is && (sameEnd(until, held[r], now) || !lastsFrom(until, now)) || !is && !lastsFrom(held[r], now) {
			continue
		}
		extra.Ranges = append(extra.Ranges, r) // as the kernel has it: its end does not matter
	}
	for r := range want.ranges() {
		until := wanted[r]
		if end, is := held[r]; is && sameEnd(until, end, now) || !lastsFrom(until, now) {
			continue
		}
		if until.IsZero() {
			missing.Ranges = append(missing.Ranges, r)
		} else {
			missing.Ends = append(missing.Ends, addrset.Ending{Range: r, Until: until})
		}
	}
	return missing, extra
}

// livingName is the kernel's name of the single addresses of a set that commands edit, and
// netName that of its ranges, without the hash of what is in it.
func livingName(id string, family int) string { return fmt.Sprintf("%s_v%d_living", stem(id), family) }
func netName(id string, family int) string    { return fmt.Sprintf("%s_net%d", stem(id), family) }

// heldNow is what a set that commands edit has at the moment: of what is about to end,
// what the kernel still has.
func heldNow(s *program.Set, have *Tree, now time.Time) addrset.Set {
	var over, doubtful addrset.Builder
	for _, e := range s.Ends {
		switch {
		case endsBy(e.Until, now):
			over.AddRange(e.Range)
		case !lastsFrom(e.Until, now):
			doubtful.AddRange(e.Range)
		}
	}
	unsure := doubtful.Set()
	out := s.Addresses.Difference(over.Set()).Difference(unsure)
	if unsure.IsEmpty() {
		return out
	}
	for _, k := range have.Sets {
		name := lineage(bare(k.Name))
		if k.Expires && slices.ContainsFunc(families, func(f int) bool { return name == livingName(s.ID, f) || name == netName(s.ID, f) }) {
			out = out.Union(k.Elements.all().Intersect(unsure))
		}
	}
	return out
}

// sideBySide is how many addresses may stand side by side in a living set and still
// be an element each, which is edited in place: a range that they would make is in a
// set that is replaced as a whole.
const sideBySide = 16

// singly takes the addresses of a living set apart: those that are elements of their
// own, and the ranges that are not.
func singly(ranges []addrset.Range) (singles, wide []addrset.Range) {
	var few []addrset.Range
	for _, r := range ranges {
		few = few[:0]
		for a := range single(r) {
			if few = append(few, addrset.Range{From: a, To: a}); len(few) > sideBySide {
				break
			}
		}
		if len(few) > sideBySide {
			wide = append(wide, r)
		} else {
			singles = append(singles, few...)
		}
	}
	return singles, wide
}
