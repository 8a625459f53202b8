package compile

import (
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// match is a list of conditions that all hold.
type match []program.Condition

// and gives a new match with more conditions; neither side is changed.
func (m match) and(more ...program.Condition) match {
	out := make(match, 0, len(m)+len(more))
	return append(append(out, m...), more...)
}

func names(f program.Field, n ...string) program.Condition {
	return program.Condition{Field: f, Names: n}
}

func not(c program.Condition) program.Condition {
	c.Not = !c.Not
	return c
}

func numbers(f program.Field, n ...uint64) program.Condition {
	c := program.Condition{Field: f}
	for _, v := range n {
		c.Numbers = append(c.Numbers, program.NumberRange{From: v, To: v})
	}
	return c
}

func portRange(f program.Field, from, to uint16) program.Condition {
	return program.Condition{Field: f, Numbers: []program.NumberRange{{From: uint64(from), To: uint64(to)}}}
}

func protocol(n uint8) program.Condition { return numbers(program.Protocol, uint64(n)) }

func family(n int) program.Condition { return numbers(program.Family, uint64(n)) }

func inSet(f program.Field, id string) program.Condition {
	return program.Condition{Field: f, Set: id}
}

func addresses(f program.Field, s addrset.Set) program.Condition {
	return program.Condition{Field: f, Addresses: s.Ranges()}
}

// TCP flags, RFC 9293 section 3.1.
const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagACK = 0x10
)

func tcpFlags(value, mask uint64) program.Condition {
	return program.Condition{Field: program.TCPFlags, Numbers: []program.NumberRange{{From: value, To: value}}, Mask: mask}
}

var (
	toLoopback   = names(program.OutInterface, "lo")
	fromLoopback = names(program.InInterface, "lo")
	untracked    = names(program.State, "untracked")
	toHost       = names(program.DestinationType, "local")
	fromHost     = names(program.SourceType, "local")
)
