package ipset

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// group is the elements that are alike except for one address.
type group struct {
	element program.Element
	net     int // which part that is
	of      map[int]*prefixes
}

// prefixes are those of one length, of addresses and what else is no prefix too.
type prefixes struct{ match, nomatch addrset.Builder }

func (g *group) add(r addrset.Range, nomatch bool) {
	bits := 128
	if p, is := r.Prefix(); is {
		bits = p.Bits()
	}
	of := g.of[bits]
	if of == nil {
		of = &prefixes{}
		g.of[bits] = of
	}
	if nomatch {
		of.nomatch.AddRange(r)
	} else {
		of.match.AddRange(r)
	}
}

// held is the addresses that match: of each the longest prefix decides (mtype_test_cidrs
// of net/netfilter/ipset/ip_set_hash_gen.h).
func (g *group) held() addrset.Set {
	var out addrset.Set
	for _, bits := range slices.Sorted(maps.Keys(g.of)) {
		of := g.of[bits]
		out = out.Union(of.match.Set()).Difference(of.nomatch.Set())
	}
	return out
}

// keyOf is an element without one of its parts; -1 is all of it.
func keyOf(e program.Element, without int) string {
	var b strings.Builder
	for i, v := range e.Parts {
		if i != without {
			b.WriteString(v.String())
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// overlap says whether one packet may have two of the keys: all that are so, and some that
// differ in a later part alone.
func overlap(keys [][]program.Value) bool {
	keys = slices.Clone(keys)
	sorting.By(keys, compare)
	// In this order ranges that overlap, and are not the same, stand side by side.
	for i := 1; i < len(keys); i++ {
		if meet(keys[i-1], keys[i]) {
			return true
		}
	}
	return false
}

func compare(a, b []program.Value) int {
	for i := range a {
		if c := compareValue(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

func compareValue(a, b program.Value) int {
	switch {
	case a.Name != "" || b.Name != "":
		return strings.Compare(a.Name, b.Name)
	case a.Addresses.From.IsValid() && b.Addresses.From.IsValid():
		return a.Addresses.Compare(b.Addresses)
	}
	return cmp.Or(cmp.Compare(a.Numbers.From, b.Numbers.From), cmp.Compare(a.Numbers.To, b.Numbers.To))
}

// meet says of neighbours in order whether the first part in which they differ is of
// ranges that overlap.
func meet(a, b []program.Value) bool {
	for i := range a {
		if compareValue(a[i], b[i]) == 0 {
			continue
		}
		switch {
		case a[i].Name != "" || b[i].Name != "":
			return false
		case a[i].Addresses.From.IsValid() && b[i].Addresses.From.IsValid():
			return a[i].Addresses.To.Compare(b[i].Addresses.From) >= 0
		}
		return a[i].Numbers.To >= b[i].Numbers.From
	}
	return true
}
