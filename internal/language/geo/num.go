package geo

import (
	"errors"

	"sluice/internal/base/addrset"
)

// num is an address of either family as a number.
type num = addrset.Number

func shl(n num, s int) num {
	if s >= 64 {
		return num{Hi: n.Lo << (s - 64)}
	}
	return num{Hi: n.Hi<<s | n.Lo>>(64-s), Lo: n.Lo << s}
}

func shr(n num, s int) num {
	if s >= 64 {
		return num{Lo: n.Hi >> (s - 64)}
	}
	return num{Hi: n.Hi >> s, Lo: n.Lo>>s | n.Hi<<(64-s)}
}

// Numbers in the compact form are gaps between ranges and sizes of ranges.
// Nearly all are a small number times a power of two: one byte holds the power
// and the odd rest follows in groups of seven bits, least first, its lowest bit
// (always one) left out. A power of 128 alone stands for zero, or for 1<<128
// where zero makes no sense.
func appendNum(b []byte, n num) []byte {
	tz := n.TrailingZeros()
	b = append(b, byte(tz))
	if tz == 128 {
		return b
	}
	rest := shr(shr(n, tz), 1)
	for rest.Hi != 0 || rest.Lo >= 0x80 {
		b = append(b, byte(rest.Lo)|0x80)
		rest = shr(rest, 7)
	}
	return append(b, byte(rest.Lo))
}

// smallNum is takeNum for the two bytes that nearly all numbers are, and quick;
// n is 0 for another one.
func smallNum(b []byte) (value num, n int) {
	if len(b) < 2 || b[0] > 120 || b[1] >= 0x80 {
		return num{}, 0
	}
	return shl(num{Lo: uint64(b[1])<<1 | 1}, int(b[0])), 2
}

var errShort = errors.New("the data end in the middle of a number")

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
		group := num{Lo: uint64(b[0] & 0x7f)}
		if shift > 126 || shr(shl(group, shift), shift) != group {
			return num{}, nil, errors.New("a number is larger than an address")
		}
		rest = rest.Add(shl(group, shift))
		more := b[0]&0x80 != 0
		b = b[1:]
		if !more {
			break
		}
	}
	odd := shl(rest, 1).Next()
	if shr(odd, 1) != rest || shr(shl(odd, tz), tz) != odd {
		return num{}, nil, errors.New("a number is larger than an address")
	}
	return shl(odd, tz), b, nil
}
