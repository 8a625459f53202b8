package nfset

import (
	"encoding/hex"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/addrset"
)

// Kind is how the elements of a set lie in the kernel; it follows from the
// set's definition.
type Kind uint8

// Kinds.
const (
	Exact        Kind = iota // no flag interval
	Interval                 // flag interval, one key
	Concatenated             // flag interval, several keys
)

// Set names a set or a map that is defined in the kernel.
type Set struct {
	Family      uint8 // of its table; 0 is inet
	Table, Name string
	Kind        Kind
	// Format makes a key readable in messages; without it keys of 4 and 16 bytes
	// are addresses.
	Format func(key []byte) string
}

func (s Set) family() byte {
	if s.Family == 0 {
		return unix.NFPROTO_INET
	}
	return s.Family
}

// Element is one element of a set.
type Element struct {
	Key []byte // the first key, or the only one; nil where CatchAll
	// End is the last key of a range, included; nil is Key. Of a
	// concatenation each part is a range of its own.
	End      []byte
	CatchAll bool // what every other key finds

	Verdict Verdict // of maps

	Counted        bool // the element has a counter, of the given values
	Packets, Bytes uint64
	// Does is the element's other expressions, such as a limit, which may end the
	// rule; of elements that were read.
	Does []Expression

	Timeout time.Duration // 0: the set's own, if it has one; whole milliseconds
	Expires time.Duration // what is left of it; 0 in Add: all of it
	Forever bool          // as read: it never expires, whatever time-out the set has
	Comment string        // at most 127 bytes
}

// Expression is what the kernel does with a packet whose key an element has. It can
// be compared; of expressions of other names only the name is known.
type Expression struct {
	Name string // "limit", "connlimit", "quota", "last"

	Packets uint64        // of a limit: so many
	Per     time.Duration // in so long, whole seconds
	Burst   uint32
	Bytes   bool   // it counts bytes, not packets
	Most    uint32 // connections, of a connlimit
	Over    bool   // it matches what is over the limit
}

// Does is what a verdict does.
type Does uint8

// What verdicts do; None is of elements that have no verdict.
const (
	None Does = iota
	Accept
	Drop
	Continue
	Return
	Jump
	Goto
)

// Verdict is what an element of a map says of a packet.
type Verdict struct {
	Does  Does
	Chain string // of Jump and Goto
}

// Codes of verdicts, NF_* of netfilter.h and NFT_* of nf_tables.h.
var verdictCodes = [...]int32{Drop: 0, Accept: 1, Continue: -1, Jump: -3, Goto: -4, Return: -5}

// Range is the element's keys as addresses; it is false where they are none.
func (e Element) Range() (addrset.Range, bool) {
	from, fromOK := netip.AddrFromSlice(e.Key)
	to := from
	toOK := fromOK
	if e.End != nil {
		to, toOK = netip.AddrFromSlice(e.End)
	}
	return addrset.Range{From: from, To: to}, fromOK && toOK
}

func (s Set) format(key []byte) string {
	if s.Format != nil {
		return s.Format(key)
	}
	if a, ok := netip.AddrFromSlice(key); ok {
		return a.String()
	}
	return "0x" + hex.EncodeToString(key)
}
