package query

import (
	"math/bits"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

const synAck = packet.SYN | packet.ACK

// flagForms are sets of flag bytes that policies lead to, with what they and
// their opposites are called.
var flagForms = []struct {
	text, opposite string
	fits           func(byte) bool
}{
	{"opening a connection (SYN without ACK)", "not opening a connection", func(b byte) bool { return b&synAck == packet.SYN }},
	{"opening a connection, or with RST", "not opening a connection, without RST", func(b byte) bool { return b&synAck == packet.SYN || b&packet.RST != 0 }},
	{"opening a connection, with RST", "not opening a connection, or without RST", func(b byte) bool { return b&synAck == packet.SYN && b&packet.RST != 0 }},
	{"opening a connection, without RST", "not opening a connection, or with RST", func(b byte) bool { return b&synAck == packet.SYN && b&packet.RST == 0 }},
}

// tcpFlags names what a set of flag bytes has in common.
func tcpFlags(list []program.NumberRange) string {
	in := contains(list)
	for _, f := range flagForms {
		same, opposite := true, true
		for n := range 256 {
			is := f.fits(byte(n)) //nolint:gosec // below 256
			same, opposite = same && is == in(uint64(n)), opposite && is != in(uint64(n))
		}
		switch {
		case same:
			return f.text
		case opposite:
			return f.opposite
		}
	}
	if text, ok := flagBits(in); ok {
		return text
	}
	if text, ok := flagBits(func(n uint64) bool { return !in(n) }); ok {
		return "not " + text
	}
	return "TCP flags " + numbers(list)
}

var flagNames = []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"}

// flagBits names a set in which some flags are always on, some always off, and
// the rest as one likes.
func flagBits(in func(uint64) bool) (string, bool) {
	every, some, count := uint8(0xff), uint8(0), 0
	for n := range 256 {
		if in(uint64(n)) {
			every, some, count = every&uint8(n), some|uint8(n), count+1 //nolint:gosec // below 256
		}
	}
	fixed := ^(every ^ some)
	if count == 0 || fixed == 0 || count != 1<<(8-bits.OnesCount8(fixed)) {
		return "", false
	}
	var with, without []string
	for i, name := range flagNames {
		switch bit := uint8(1) << i; {
		case fixed&bit == 0:
		case every&bit != 0:
			with = append(with, name)
		default:
			without = append(without, name)
		}
	}
	var out []string
	if len(with) > 0 {
		out = append(out, "with "+english.List(with))
	}
	if len(without) > 0 {
		out = append(out, "without "+english.List(without))
	}
	return strings.Join(out, ", "), true
}
