package addrset

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Number is an address as a number of 128 bits, of IPv4 in the lowest 32. What leads
// over either end comes in again at the other.
type Number struct{ Hi, Lo uint64 }

// NumberOf gives the number of an address.
func NumberOf(a netip.Addr) Number {
	if a.Is4() {
		return Number{0, uint64(key4Of(a))}
	}
	return key6Of(a)
}

// LastNumber is that of the last address of a family.
func LastNumber(is4 bool) Number {
	if is4 {
		return Number{0, 1<<32 - 1}
	}
	return Number{^uint64(0), ^uint64(0)}
}

// Addr gives the address of a family that has the number.
func (n Number) Addr(is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.Hi)
	binary.BigEndian.PutUint64(b[8:], n.Lo)
	if is4 {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

// Compare is negative where n comes before o, and positive where it comes behind it.
func (n Number) Compare(o Number) int {
	switch {
	case n.Hi < o.Hi:
		return -1
	case n.Hi > o.Hi:
		return 1
	case n.Lo < o.Lo:
		return -1
	case n.Lo > o.Lo:
		return 1
	}
	return 0
}

// Less says whether n comes before o.
func (n Number) Less(o Number) bool { return n.Hi < o.Hi || n.Hi == o.Hi && n.Lo < o.Lo }

// Add gives the sum.
func (n Number) Add(o Number) Number {
	lo, carry := bits.Add64(n.Lo, o.Lo, 0)
	hi, _ := bits.Add64(n.Hi, o.Hi, carry)
	return Number{hi, lo}
}

// Sub gives the difference.
func (n Number) Sub(o Number) Number {
	lo, borrow := bits.Sub64(n.Lo, o.Lo, 0)
	hi, _ := bits.Sub64(n.Hi, o.Hi, borrow)
	return Number{hi, lo}
}

// Next is one more.
func (n Number) Next() Number { return n.Add(Number{0, 1}) }

// Prev is one less.
func (n Number) Prev() Number { return n.Sub(Number{0, 1}) }

// TrailingZeros is how many of the lowest bits are off, 128 of zero.
func (n Number) TrailingZeros() int {
	if n.Lo != 0 {
		return bits.TrailingZeros64(n.Lo)
	}
	return 64 + bits.TrailingZeros64(n.Hi)
}
