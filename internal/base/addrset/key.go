package addrset

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// key is an address as a number of one family. The methods that step to a
// neighbour wrap around; callers check against max or min first.
type key[K any] interface {
	comparable
	compare(K) int
	next() K
	prev() K
	max() K
	// trailingZeros is the size in bits of the largest aligned block that
	// starts here; the width of the family for zero.
	trailingZeros() int
	// fill sets the lowest n bits.
	fill(n int) K
	width() int
	addr() netip.Addr
}

type key4 uint32

func (k key4) compare(o key4) int {
	switch {
	case k < o:
		return -1
	case k > o:
		return 1
	}
	return 0
}

func (k key4) next() key4         { return k + 1 }
func (k key4) prev() key4         { return k - 1 }
func (k key4) max() key4          { return ^key4(0) }
func (k key4) trailingZeros() int { return bits.TrailingZeros32(uint32(k)) }
func (k key4) fill(n int) key4    { return k | key4(uint64(1)<<n-1) }
func (k key4) width() int         { return 32 }

func (k key4) addr() netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(k))
	return netip.AddrFrom4(b)
}

func key4Of(a netip.Addr) key4 {
	b := a.As4()
	return key4(binary.BigEndian.Uint32(b[:]))
}

type key6 struct{ hi, lo uint64 }

func (k key6) compare(o key6) int {
	switch {
	case k.hi < o.hi:
		return -1
	case k.hi > o.hi:
		return 1
	case k.lo < o.lo:
		return -1
	case k.lo > o.lo:
		return 1
	}
	return 0
}

func (k key6) next() key6 {
	lo, carry := bits.Add64(k.lo, 1, 0)
	return key6{k.hi + carry, lo}
}

func (k key6) prev() key6 {
	lo, borrow := bits.Sub64(k.lo, 1, 0)
	return key6{k.hi - borrow, lo}
}

func (k key6) add(o key6) key6 {
	lo, carry := bits.Add64(k.lo, o.lo, 0)
	hi, _ := bits.Add64(k.hi, o.hi, carry)
	return key6{hi, lo}
}

func (k key6) sub(o key6) key6 {
	lo, borrow := bits.Sub64(k.lo, o.lo, 0)
	hi, _ := bits.Sub64(k.hi, o.hi, borrow)
	return key6{hi, lo}
}

func (k key6) max() key6 { return key6{^uint64(0), ^uint64(0)} }

func (k key6) trailingZeros() int {
	if k.lo != 0 {
		return bits.TrailingZeros64(k.lo)
	}
	return 64 + bits.TrailingZeros64(k.hi)
}

func (k key6) fill(n int) key6 {
	if n <= 64 {
		return key6{k.hi, k.lo | lowBits(n)}
	}
	return key6{k.hi | lowBits(n-64), ^uint64(0)}
}

func lowBits(n int) uint64 {
	if n == 64 {
		return ^uint64(0)
	}
	return uint64(1)<<n - 1
}

func (k key6) width() int { return 128 }

func (k key6) addr() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	return netip.AddrFrom16(b)
}

func key6Of(a netip.Addr) key6 {
	b := a.As16()
	return key6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}
