package addrset

import (
	"fmt"
	"net/netip"
	"slices"
)

// Builder gathers addresses in any order for a [Set]. The zero value is ready
// for use. It may go on after a call of Set.
type Builder struct {
	v4 []span[key4]
	v6 []span[key6]
}

// AddRange adds the addresses of r. It panics when r is invalid, since that is
// a mistake of the caller and never of the input: see [NewRange].
func (b *Builder) AddRange(r Range) {
	if !r.IsValid() {
		panic(fmt.Sprintf("addrset: invalid range %s-%s", r.From, r.To))
	}
	if r.From.Is4() {
		b.v4 = append(b.v4, r.span4())
	} else {
		b.v6 = append(b.v6, r.span6())
	}
}

// AddPrefix adds the addresses of p, host bits ignored. It panics when p is
// invalid.
func (b *Builder) AddPrefix(p netip.Prefix) {
	if !p.IsValid() {
		panic("addrset: invalid prefix " + p.String())
	}
	b.AddRange(PrefixRange(p))
}

// AddAddr adds one address. An IPv4-mapped one is added as IPv4, and a zone is
// ignored. It panics when a is invalid.
func (b *Builder) AddAddr(a netip.Addr) {
	a = a.Unmap().WithZone("")
	b.AddRange(Range{a, a})
}

// Grow makes room for so many more ranges of each family.
func (b *Builder) Grow(v4, v6 int) {
	b.v4, b.v6 = slices.Grow(b.v4, v4), slices.Grow(b.v6, v6)
}

// Add4 adds the IPv4 addresses between two numbers, both included. It panics
// when they are in reverse order.
func (b *Builder) Add4(from, to uint32) {
	if from > to {
		panic(fmt.Sprintf("addrset: invalid range %#x-%#x", from, to))
	}
	b.v4 = append(b.v4, span[key4]{key4(from), key4(to)})
}

// Add6 adds the IPv6 addresses between two numbers, given by their upper and
// lower halves, both included. It panics when they are in reverse order.
func (b *Builder) Add6(fromHi, fromLo, toHi, toLo uint64) {
	r := span[key6]{key6{fromHi, fromLo}, key6{toHi, toLo}}
	if r.from.Compare(r.to) > 0 {
		panic(fmt.Sprintf("addrset: invalid range %s-%s", r.from.addr(), r.to.addr()))
	}
	b.v6 = append(b.v6, r)
}

// AddSet adds the addresses of s; the first one is not copied.
func (b *Builder) AddSet(s Set) {
	b.v4, b.v6 = appendShared(b.v4, s.v4), appendShared(b.v6, s.v6)
}

// appendShared gives the array of part itself where there is nothing to add it
// to; without room behind it, whatever comes next takes another.
func appendShared[K key[K]](to, part []span[K]) []span[K] {
	if len(to) == 0 && cap(to) < len(part) {
		return slices.Clip(part)
	}
	return append(to, part...)
}

// Set returns the set of what has been added up to now.
func (b *Builder) Set() Set {
	b.v4, b.v6 = settle(b.v4), settle(b.v6)
	return Set{b.v4, b.v6}
}

// settle normalizes s and cuts its capacity, so that an append that follows
// leaves the array to the set that shares it.
func settle[K key[K]](s []span[K]) []span[K] {
	n := normalize(s)
	if cap(s) > 2*len(n) {
		return slices.Clip(slices.Clone(n))
	}
	return slices.Clip(n)
}
