package geo

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
)

// num is an address of either family as a number.
type num struct{ hi, lo uint64 }

func numOf(a netip.Addr) num {
	if a.Is4() {
		b := a.As4()
		return num{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return num{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n num) addr(is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	if is4 {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

func (n num) compare(o num) int {
	switch {
	case n.hi < o.hi:
		return -1
	case n.hi > o.hi:
		return 1
	case n.lo < o.lo:
		return -1
	case n.lo > o.lo:
		return 1
	}
	return 0
}

func (n num) less(o num) bool { return n.compare(o) < 0 }

// add and sub wrap around.
func (n num) add(o num) num {
	lo, carry := bits.Add64(n.lo, o.lo, 0)
	hi, _ := bits.Add64(n.hi, o.hi, carry)
	return num{hi, lo}
}

func (n num) sub(o num) num {
	lo, borrow := bits.Sub64(n.lo, o.lo, 0)
	hi, _ := bits.Sub64(n.hi, o.hi, borrow)
	return num{hi, lo}
}

func (n num) next() num { return n.add(num{0, 1}) }
func (n num) prev() num { return n.sub(num{0, 1}) }

func lastNum(is4 bool) num {
	if is4 {
		return num{0, 1<<32 - 1}
	}
	return num{^uint64(0), ^uint64(0)}
}

func (n num) shl(s int) num {
	if s >= 64 {
		return num{n.lo << (s - 64), 0}
	}
	return num{n.hi<<s | n.lo>>(64-s), n.lo << s}
}

func (n num) shr(s int) num {
	if s >= 64 {
		return num{0, n.hi >> (s - 64)}
	}
	return num{n.hi >> s, n.lo>>s | n.hi<<(64-s)}
}

func (n num) trailingZeros() int {
	if n.lo != 0 {
		return bits.TrailingZeros64(n.lo)
	}
	return 64 + bits.TrailingZeros64(n.hi)
}

// Numbers in the compact form are gaps between ranges and sizes of ranges.
// Nearly all are a small number times a power of two: one byte holds the power
// and the odd rest follows in groups of seven bits, least first, its lowest bit
// (always one) left out. A power of 128 alone stands for zero, or for 1<<128
// where zero makes no sense.
func appendNum(b []byte, n num) []byte {
	tz := n.trailingZeros()
	b = append(b, byte(tz))
	if tz == 128 {
		return b
	}
	rest := n.shr(tz).shr(1)
	for rest.hi != 0 || rest.lo >= 0x80 {
		b = append(b, byte(rest.lo)|0x80)
		rest = rest.shr(7)
	}
	return append(b, byte(rest.lo))
}

// smallNum is takeNum for the two bytes that nearly all numbers are, and quick;
// n is 0 for another one.
func smallNum(b []byte) (value num, n int) {
	if len(b) < 2 || b[0] > 120 || b[1] >= 0x80 {
		return num{}, 0
	}
	return num{0, uint64(b[1])<<1 | 1}.shl(int(b[0])), 2
}

var errShort = errors.New("data end in the middle of a number")

func takeNum(b []byte) (num, []byte, error) {
	if len(b) == 0 {
		return num{}, nil, errShort
	}
	tz := int(b[0])
	b = b[1:]
	if tz == 128 {
		return num{}, b, nil
	}
	if tz > 128 {
		return num{}, nil, errors.New("a number is larger than an address")
	}
	var rest num
	for shift := 0; ; shift += 7 {
		if len(b) == 0 {
			return num{}, nil, errShort
		}
		group := num{0, uint64(b[0] & 0x7f)}
		if shift > 126 || group.shl(shift).shr(shift) != group {
			return num{}, nil, errors.New("a number is larger than an address")
		}
		rest = rest.add(group.shl(shift))
		more := b[0]&0x80 != 0
		b = b[1:]
		if !more {
			break
		}
	}
	odd := rest.shl(1).next()
	if odd.shr(1) != rest || odd.shl(tz).shr(tz) != odd {
		return num{}, nil, errors.New("a number is larger than an address")
	}
	return odd.shl(tz), b, nil
}
