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
	Compare(K) int
	Next() K
	Prev() K
	max() K
	// TrailingZeros is the size in bits of the largest aligned block that
	// starts here; the width of the family for zero.
	TrailingZeros() int
	// fill sets the lowest n bits.
	fill(n int) K
	width() int
	addr() netip.Addr
}

type key4 uint32

func (k key4) Compare(o key4) int {
	switch {
	case k < o:
		return -1
	case k > o:
		return 1
	}
	return 0
}

func (k key4) Next() key4         { return k + 1 }
func (k key4) Prev() key4         { return k - 1 }
func (k key4) max() key4          { return ^key4(0) }
func (k key4) TrailingZeros() int { return bits.TrailingZeros32(uint32(k)) }
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

// key6 is an IPv6 address.
type key6 = Number

func key6Of(a netip.Addr) key6 {
	b := a.As16()
	return key6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n Number) max() Number      { return LastNumber(false) }
func (n Number) width() int       { return 128 }
func (n Number) addr() netip.Addr { return n.Addr(false) }

func (n Number) fill(count int) Number {
	if count <= 64 {
		return Number{n.Hi, n.Lo | lowBits(count)}
	}
	return Number{n.Hi | lowBits(count-64), ^uint64(0)}
}

func lowBits(n int) uint64 {
	if n == 64 {
		return ^uint64(0)
	}
	return uint64(1)<<n - 1
}
