package nftables

import (
	"math"
	"math/bits"
	"net/netip"

	"sluice/internal/base/addrset"
)

// position is an address as a number of 128 bits. An IPv4 address is in the
// upper 32, so that a prefix of n bits is the upper n bits in both families.
type position struct{ hi, lo uint64 }

func (a position) less(b position) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a position) next() position {
	lo, carry := bits.Add64(a.lo, 1, 0)
	return position{a.hi + carry, lo}
}

func (a position) before() position {
	lo, borrow := bits.Sub64(a.lo, 1, 0)
	return position{a.hi - borrow, lo}
}

// span is an inclusive range of positions.
type span struct{ from, to position }

// size is how many addresses there are in it, as a weight; of IPv6 in networks
// of 64 bits.
func (s span) size() float64 {
	return float64(s.to.hi-s.from.hi) + float64(s.to.lo-s.from.lo)/(1<<63)/2 + 1.0/(1<<32)
}

func positionOf(a netip.Addr) position {
	if a.Is4() {
		b := a.As4()
		return position{hi: uint64(b[0])<<56 | uint64(b[1])<<48 | uint64(b[2])<<40 | uint64(b[3])<<32}
	}
	b := a.As16()
	var n position
	for i := range 8 {
		n.hi = n.hi<<8 | uint64(b[i])
		n.lo = n.lo<<8 | uint64(b[i+8])
	}
	return n
}

func (a position) address(family int) netip.Addr {
	if family == 4 {
		return netip.AddrFrom4([4]byte{byte(a.hi >> 56), byte(a.hi >> 48), byte(a.hi >> 40), byte(a.hi >> 32)})
	}
	var b [16]byte
	for i := range 8 {
		b[i], b[i+8] = byte(a.hi>>(56-8*i)), byte(a.lo>>(56-8*i))
	}
	return netip.AddrFrom16(b)
}

// spansOf gives the addresses of one family.
func spansOf(s addrset.Set, family int) []span {
	mine, n := s.Only6(), s.Len6()
	fill := position{}
	if family == 4 {
		mine, n = s.Only4(), s.Len4()
		fill = position{math.MaxUint32, math.MaxUint64}
	}
	out := make([]span, 0, n)
	for r := range mine.Each() {
		to := positionOf(r.To)
		out = append(out, span{positionOf(r.From), position{to.hi | fill.hi, to.lo | fill.lo}})
	}
	return out
}

// lengths of prefixes are at most half an IPv6 address, so that the upper word
// of a position holds one.
const longestPrefix = 64

// area is the part of a set that lies in one prefix.
type area struct {
	prefix uint64 // the upper word of its first position
	length int
	// spans are those of the set that reach into the prefix: the first may begin
	// before it and the last may end behind it. There is at least one.
	spans []span
}

func (b area) first() position { return position{b.prefix, 0} }

func (b area) last() position { return endOf(b.prefix, b.length) }

func endOf(prefix uint64, length int) position {
	if length == 0 {
		return position{math.MaxUint64, math.MaxUint64}
	}
	return position{prefix | ^(^uint64(0) << (longestPrefix - length)), math.MaxUint64}
}

// full says whether everything in the prefix is in the set.
func (b area) full() bool {
	s := b.spans[0]
	return len(b.spans) == 1 && !b.first().less(s.from) && !s.to.less(b.last())
}

// each gives the spans as far as they lie in the prefix.
func (b area) each(yield func(span) bool) {
	for _, s := range b.spans {
		if s.from.less(b.first()) {
			s.from = b.first()
		}
		if b.last().less(s.to) {
			s.to = b.last()
		}
		if !yield(s) {
			return
		}
	}
}

func (b area) has(a position) bool {
	i := search(b.spans, func(s span) bool { return s.to.less(a) })
	return i < len(b.spans) && !a.less(b.spans[i].from)
}

// whole is all of a set.
func whole(spans []span) area { return area{spans: spans} }

// split cuts an area into those of all longer prefixes of a length that have
// something in them, in order.
func (b area) split(length int) (out []area) {
	mask := ^uint64(0) << (longestPrefix - length)
	one := ^mask + 1
	i, end := 0, b.last()
	for at := b.prefix; i < len(b.spans); {
		s := b.spans[i]
		if at < s.from.hi {
			at = s.from.hi & mask
		}
		if end.hi < at {
			break
		}
		next := area{prefix: at, length: length}
		last := next.last()
		j := i + 1
		for j < len(b.spans) && !last.less(b.spans[j].from) {
			j++
		}
		next.spans = b.spans[i:j]
		out = append(out, next)
		if i = j; !b.spans[j-1].to.less(last) {
			if i = j - 1; b.spans[i].to == last {
				i = j
			}
		}
		if at += one; at == 0 {
			break
		}
	}
	return out
}

// value is bits [at, at+width) of a prefix, as a number.
func value(prefix uint64, at, width int) uint64 { return prefix << at >> (longestPrefix - width) }
