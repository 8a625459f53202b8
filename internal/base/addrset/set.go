package addrset

import (
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// Family is one of the two address families.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Set is an immutable set of addresses. The zero value is the empty set. Sets
// share memory freely; none of the methods changes one.
type Set struct {
	v4 []span[key4]
	v6 []span[key6]
}

// Of returns the set of the addresses in r. Like [Builder.AddRange] it panics
// on an invalid range.
func Of(r ...Range) Set {
	var b Builder
	for _, r := range r {
		b.AddRange(r)
	}
	return b.Set()
}

// FromPrefixes returns the set of the addresses in p, host bits ignored.
func FromPrefixes(p ...netip.Prefix) Set {
	var b Builder
	for _, p := range p {
		b.AddPrefix(p)
	}
	return b.Set()
}

// MustParse returns the set of addresses, prefixes and ranges that are known to be right; it
// panics where one is not.
func MustParse(texts ...string) Set {
	var b Builder
	for _, text := range texts {
		b.AddRange(MustParseRange(text))
	}
	return b.Set()
}

// All returns every address of both families.
func All() Set { return Set{}.Complement() }

// Union returns the addresses in s or o.
func (s Set) Union(o Set) Set {
	return Set{union(s.v4, o.v4), union(s.v6, o.v6)}
}

// Difference returns the addresses in s that are not in o.
func (s Set) Difference(o Set) Set {
	return Set{difference(s.v4, o.v4), difference(s.v6, o.v6)}
}

// Intersect returns the addresses in both s and o.
func (s Set) Intersect(o Set) Set {
	return Set{intersect(s.v4, o.v4), intersect(s.v6, o.v6)}
}

// Complement returns every address of both families that is not in s.
func (s Set) Complement() Set {
	return Set{complement(s.v4), complement(s.v6)}
}

// ComplementIn returns every address of one family that is not in s.
func (s Set) ComplementIn(f Family) Set {
	if f == IPv4 {
		return Set{v4: complement(s.v4)}
	}
	return Set{v6: complement(s.v6)}
}

// Contains reports whether a is in s. An IPv4-mapped address is looked up as
// the IPv4 address, and a zone is ignored.
func (s Set) Contains(a netip.Addr) bool {
	a = a.Unmap()
	switch {
	case a.Is4():
		return find(s.v4, key4Of(a))
	case a.Is6():
		return find(s.v6, key6Of(a))
	}
	return false
}

// Find returns the minimal range of s that holds a, and whether there is one. An
// IPv4-mapped address is looked up as the IPv4 address, and a zone is ignored.
func (s Set) Find(a netip.Addr) (Range, bool) {
	a = a.Unmap()
	switch {
	case a.Is4():
		return holding(s.v4, key4Of(a))
	case a.Is6():
		return holding(s.v6, key6Of(a))
	}
	return Range{}, false
}

func holding[K key[K]](s []span[K], k K) (Range, bool) {
	i := firstEnding(s, k)
	if i == len(s) || k.Compare(s[i].from) < 0 {
		return Range{}, false
	}
	return Range{s[i].from.addr(), s[i].to.addr()}, true
}

// ContainsSet reports whether every address of o is in s.
func (s Set) ContainsSet(o Set) bool { return contains(s.v4, o.v4) && contains(s.v6, o.v6) }

// Overlaps reports whether s and o have an address in common.
func (s Set) Overlaps(o Set) bool { return overlaps(s.v4, o.v4) || overlaps(s.v6, o.v6) }

// Equal reports whether s and o hold the same addresses.
func (s Set) Equal(o Set) bool { return slices.Equal(s.v4, o.v4) && slices.Equal(s.v6, o.v6) }

// IsEmpty reports whether s holds no address.
func (s Set) IsEmpty() bool { return len(s.v4) == 0 && len(s.v6) == 0 }

// Has4 reports whether s holds an IPv4 address.
func (s Set) Has4() bool { return len(s.v4) > 0 }

// Has6 reports whether s holds an IPv6 address.
func (s Set) Has6() bool { return len(s.v6) > 0 }

// Only4 returns the IPv4 addresses of s.
func (s Set) Only4() Set { return Set{v4: s.v4} }

// Only6 returns the IPv6 addresses of s.
func (s Set) Only6() Set { return Set{v6: s.v6} }

// Count4 returns the number of IPv4 addresses, at most 1<<32.
func (s Set) Count4() uint64 {
	var n uint64
	for _, r := range s.v4 {
		n += uint64(r.to-r.from) + 1
	}
	return n
}

// Count6 returns the number of IPv6 addresses, at most 1<<128.
func (s Set) Count6() *big.Int {
	// The sum of to-from fits 128 bits; the ones are added at the end.
	var sum key6
	for _, r := range s.v6 {
		d := r.to.Sub(r.from)
		sum = sum.Sub(key6{}.Sub(d))
	}
	n := new(big.Int).SetUint64(sum.Hi)
	n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(sum.Lo))
	return n.Add(n, big.NewInt(int64(len(s.v6))))
}

// String returns the ranges with a comma and a blank between, for messages and
// tests.
func (s Set) String() string {
	var b strings.Builder
	for r := range s.Each() {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.String())
	}
	return b.String()
}
