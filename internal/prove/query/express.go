package query

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
)

// maxTerms is of how many names a name may be made, on either side of "except".
const maxTerms = 4

// known is a set that has a name.
type known struct {
	text string
	set  addrset.Set
	ends []netip.Addr // first and last of each family, to see soon what does not fit
}

func newKnown(text string, s addrset.Set) known { return known{text, s, ends(s)} }

func ends(s addrset.Set) (out []netip.Addr) {
	for _, part := range []addrset.Set{s.Only4(), s.Only6()} {
		if from, to, ok := part.Bounds(); ok {
			out = append(out, from, to)
		}
	}
	return out
}

// inside says whether k lies in s; outside, whether they have nothing in common;
// around, whether k holds s, whose ends are given.
func (k *known) inside(s addrset.Set) bool {
	return !slices.ContainsFunc(k.ends, func(a netip.Addr) bool { return !s.Contains(a) }) && s.ContainsSet(k.set)
}

func (k *known) outside(s addrset.Set) bool {
	return !slices.ContainsFunc(k.ends, s.Contains) && !k.set.Overlaps(s)
}

func (k *known) around(s addrset.Set, its []netip.Addr) bool {
	return !slices.ContainsFunc(its, func(a netip.Addr) bool { return !k.set.Contains(a) }) && k.set.ContainsSet(s)
}

// expression looks for words for a set out of sets that have names.
type expression struct {
	whole  addrset.Set // all addresses of the families in question
	family string      // "" for both
	known  []known     // those that are preferred first
	free   addrset.Set // not spoken of
	// namesOnly: no range stands for itself among names.
	namesOnly bool
}

// exactly finds the set that is meant.
func (x *expression) exactly(s addrset.Set) (string, bool) {
	for i := range x.known {
		if x.known[i].set.Equal(s) {
			return x.known[i].text, true
		}
	}
	return "", false
}

// say tries, in this order: one name, a few names together, all but a few, one
// name but a few others, what two names have in common, one name and another
// but a few. A few ranges may stand for a name among others.
func (x *expression) say(s addrset.Set) (string, bool) {
	if text, ok := x.exactly(s); ok {
		return text, true
	}
	its := ends(s)
	inside := x.those(func(k *known) bool { return k.inside(s) })
	if terms, ok := x.cover(s, inside); ok {
		return english.List(terms), true
	}
	outside := x.those(func(k *known) bool { return k.outside(s) })
	if terms, ok := x.cover(x.whole.Difference(s), outside); ok {
		return x.but(terms), true
	}
	around := x.those(func(k *known) bool { return k.around(s, its) })
	sorting.StableBy(around, func(a, b known) int { return cmp.Compare(size(a.set), size(b.set)) })
	for _, k := range around {
		if terms, ok := x.cover(k.set.Difference(s), outside); ok {
			return k.text + " except " + english.List(terms), true
		}
	}
	for i, k := range around {
		for _, other := range around[i+1:] {
			if k.set.Intersect(other.set).Equal(s) {
				return "what is in " + k.text + " and in " + other.text, true
			}
		}
	}
	for i := range inside {
		rest := s.Difference(inside[i].set)
		itsRest := ends(rest)
		for j := range x.known {
			wide := &x.known[j]
			if rest.IsEmpty() || !wide.around(rest, itsRest) {
				continue
			}
			if terms, ok := x.cover(wide.set.Difference(s), outside); ok {
				return inside[i].text + ", and " + wide.text + " except " + english.List(terms), true
			}
		}
	}
	return "", false
}

// but says what is not in any of the terms.
func (x *expression) but(terms []string) string {
	switch {
	case x.family != "":
		return "any " + x.family + " address except " + english.List(terms)
	case len(terms) == 1:
		return "not " + terms[0]
	}
	return "anywhere except " + english.List(terms)
}

func (x *expression) those(are func(*known) bool) []known {
	var out []known
	for i := range x.known {
		if are(&x.known[i]) {
			out = append(out, x.known[i])
		}
	}
	return out
}

func size(s addrset.Set) int { return s.Len4() + s.Len6() }

// cover finds a few of the candidates that together hold the target; they may
// hold more. What a few ranges are left of it may stand for themselves.
func (x *expression) cover(target addrset.Set, candidates []known) ([]string, bool) {
	candidates = slices.Clone(candidates)
	sorting.StableBy(candidates, func(a, b known) int { return cmp.Compare(size(b.set), size(a.set)) })
	var terms []string
	rest := target
	for i := range candidates {
		if rest.IsEmpty() || len(terms) == maxTerms {
			break
		}
		k := &candidates[i]
		if !k.set.Overlaps(rest) {
			continue
		}
		if left := rest.Difference(k.set); size(left) < size(rest) {
			rest, terms = left, append(terms, k.text)
		}
	}
	if literal := x.closed(rest); !x.namesOnly && !rest.IsEmpty() && size(literal) <= fewRanges && len(terms) < maxTerms {
		for r := range literal.Each() {
			terms = append(terms, r.String())
		}
		rest = addrset.Set{}
	}
	return x.needed(target, terms), rest.IsEmpty() && len(terms) > 0
}

// needed leaves the terms without which the others would not hold the target.
func (x *expression) needed(target addrset.Set, terms []string) []string {
	sets := map[string]addrset.Set{}
	for i := range x.known {
		sets[x.known[i].text] = x.known[i].set
	}
	for i := 0; i < len(terms); {
		rest := target
		for j, other := range terms {
			s, isName := sets[other]
			if !isName { // a range: it is there since no name holds it
				if r, err := addrset.ParseRange(other); err == nil {
					s = addrset.Of(r)
				}
			}
			if j != i {
				rest = rest.Difference(s)
			}
		}
		if rest.IsEmpty() && len(terms) > 1 {
			terms = slices.Delete(terms, i, i+1)
			continue
		}
		i++
	}
	return terms
}
