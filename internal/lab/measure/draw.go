package measure

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sort"
	"sync"

	"sluice/internal/base/addrset"
)

// Sources is how many addresses a traffic of drawn sources has by default: as
// many as the XDP program's table takes.
const Sources = 1 << 16

// unusable are the sources that the stack drops before any rule of the input hook
// (martian sources in net/ipv4/route.c, ip6_rcv_core in net/ipv6/ip6_input.c), and
// the lab's own networks.
var unusable = sync.OnceValue(func() addrset.Set {
	return addrset.MustParse("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "198.51.100.0/24",
		"::/8", "fe80::/10", "ff00::/8", "2001:db8:0:1::/64")
})

// Usable is the set without the sources that no lab's rules would see.
func Usable(s addrset.Set) addrset.Set { return s.Difference(unusable()) }

// ByAddress draws n addresses of one family, each address of the set equally
// likely: traffic as it comes when every host is as busy as any other. The same
// seed draws the same addresses. It panics when the set has no usable address of
// the family.
func ByAddress(s addrset.Set, f addrset.Family, n int, seed uint64) []netip.Addr {
	ranges := usable(s, f)
	if f == addrset.IPv6 {
		// counted in /64s, whose sum has 64 bits; a smaller range counts as one
		return draw(ranges, n, seed, func(r span) uint64 { return r.width().Hi + 1 })
	}
	return draw(ranges, n, seed, func(r span) uint64 { return r.width().Lo + 1 })
}

// ByRange draws n addresses of one family, each of the set's ranges equally
// likely: the worst case for a layout that answers large blocks early.
func ByRange(s addrset.Set, f addrset.Family, n int, seed uint64) []netip.Addr {
	return draw(usable(s, f), n, seed, func(span) uint64 { return 1 })
}

// BySubnet48 draws n IPv6 addresses, each /48 that the set has a part of equally
// likely, then each address of that part. A /48 that several ranges share counts
// for the first of them.
func BySubnet48(s addrset.Set, n int, seed uint64) []netip.Addr {
	const subnet = 1 << 16 // of a /48 in the upper half of an address
	var parts []span
	next := uint64(0) // the first /48 that is not counted yet
	for _, r := range usable(s, addrset.IPv6) {
		first, last := r.from.Hi/subnet, r.to.Hi/subnet
		if first < next {
			if last < next {
				continue
			}
			r.from = addrset.Number{Hi: next * subnet}
		}
		next = last + 1
		parts = append(parts, r)
	}
	random := generator(seed)
	cumulated := cumulate(parts, func(r span) uint64 { return r.to.Hi/subnet - r.from.Hi/subnet + 1 })
	out := make([]netip.Addr, n)
	for i := range out {
		part, number := pick(random, cumulated)
		r := parts[part]
		at := (r.from.Hi/subnet + number) * subnet
		low, high := addrset.Number{Hi: at}, addrset.Number{Hi: at + subnet - 1, Lo: ^uint64(0)}
		if low.Less(r.from) {
			low = r.from
		}
		if r.to.Less(high) {
			high = r.to
		}
		out[i] = span{low, high, addrset.IPv6}.address(random)
	}
	return out
}

func draw(ranges []span, n int, seed uint64, weight func(span) uint64) []netip.Addr {
	random := generator(seed)
	cumulated := cumulate(ranges, weight)
	out := make([]netip.Addr, n)
	for i := range out {
		part, _ := pick(random, cumulated)
		out[i] = ranges[part].address(random)
	}
	return out
}

func generator(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func cumulate(ranges []span, weight func(span) uint64) []uint64 {
	out, sum := make([]uint64, len(ranges)), uint64(0)
	for i, r := range ranges {
		sum += weight(r)
		out[i] = sum
	}
	return out
}

// pick returns a part by its weight, and a number below that weight.
func pick(random *rand.Rand, cumulated []uint64) (part int, number uint64) {
	x := random.Uint64N(cumulated[len(cumulated)-1])
	part = sort.Search(len(cumulated), func(i int) bool { return cumulated[i] > x })
	if part > 0 {
		x -= cumulated[part-1]
	}
	return part, x
}

// span is a range of addresses.
type span struct {
	from, to addrset.Number
	family   addrset.Family
}

func usable(s addrset.Set, f addrset.Family) []span {
	s = Usable(s)
	ranges := s.V4()
	if f == addrset.IPv6 {
		ranges = s.V6()
	}
	if len(ranges) == 0 {
		panic(fmt.Sprintf("no usable IPv%d address in the set", f))
	}
	out := make([]span, len(ranges))
	for i, r := range ranges {
		out[i] = span{addrset.NumberOf(r.From), addrset.NumberOf(r.To), f}
	}
	return out
}

// width is the number of addresses less one.
func (r span) width() addrset.Number { return r.to.Sub(r.from) }

// address draws an address of the range, all equally likely.
func (r span) address(random *rand.Rand) netip.Addr {
	width := r.width()
	for {
		x := addrset.Number{Hi: below(random, width.Hi), Lo: random.Uint64()}
		if width.Hi == 0 {
			x.Lo = below(random, width.Lo)
		}
		if width.Less(x) {
			continue // at most half of the draws
		}
		return r.from.Add(x).Addr(r.family == addrset.IPv4)
	}
}

// below draws a number of at most as many bits as the largest has.
func below(random *rand.Rand, largest uint64) uint64 {
	if largest == 0 {
		return 0
	}
	return random.Uint64() >> (64 - bits.Len64(largest))
}
