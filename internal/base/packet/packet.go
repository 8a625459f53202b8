// Package packet is what the judges of policies and programs speak of: one
// packet with what the kernel knows of it when it meets a hook. It is data
// alone and imports nothing of Sluice.
package packet

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Packet is one packet. Zero values of the fields that are marked so mean that
// nothing is known; the others are what the packet carries.
type Packet struct {
	In  string // interface as routing sees it; "" is none or unknown
	Out string // the same
	// InRoute and OutRoute say whether a default route leaves by that interface, where
	// that is assumed; Unknown: it is as the host's facts have it.
	InRoute, OutRoute Answer
	// Own says of zones whether the destination is one of the host's own addresses
	// there, where that is assumed.
	Own OwnIn
	// Filled says which addresses are in sets that another program fills, as
	// "SET/ADDRESS", where that is assumed, and "SET/" of those that come by
	// a rewriting.
	Filled OwnIn

	Source      netip.Addr // invalid is unknown, as is then its port
	Destination netip.Addr
	Protocol    uint8 // IANA; of IPv6 the last header

	SourcePort uint16 // of protocols with ports
	Port       uint16 // the destination's
	Flags      uint8  // TCP flags byte
	ICMPType   uint8  // ICMP and ICMPv6
	ICMPCode   uint8
	ICMPID     uint16 // of queries and their replies
	// Segment is where a TCP packet is in its connection; nil is where it should.
	Segment *Segment
	// Quoted is the packet that an ICMP error carries inside, as the sender of
	// the error met it; nil is none or unknown.
	Quoted *Packet

	State State // "" is not yet decided
	// Original is the tuple that the flow came with, where the destination or
	// the source were rewritten since; the zero value is the packet's own.
	Original Tuple
	DNAT     bool // the destination was rewritten
	SNAT     bool
	Reply    bool // the packet goes against the direction in which the flow began

	Mark uint32

	// DestinationLocal and SourceLocal say whether an address is one of the
	// host's own; Unknown where nobody looked.
	DestinationLocal Answer
	SourceLocal      Answer

	Fragment bool  // other than the first fragment
	Length   int   // bytes; 0 is unknown
	HopLimit uint8 // 0 is unknown
	DSCP     uint8
	Owner    int64 // user id of the local socket; -1 is none, 0 is root
	Time     int64 // when it passes, in seconds since 1970; 0 is now
}

// Segment is the place of a TCP packet in its connection.
type Segment struct {
	Seq, Ack uint32
	Data     uint32 // bytes that it carries
	Window   uint16 // as in the header, unscaled
	Options  *TCPOptions
}

// TCPOptions are what a TCP header has behind its first 20 bytes; of a packet whose
// header has no more they are nil.
type TCPOptions struct {
	Scaled        bool   // window scaling (RFC 7323)
	Scale         uint8  // by how many bits
	SACKPermitted bool   // selective acknowledgements (RFC 2018) are understood
	SACK          uint32 // the right edge of the highest block of one; 0 is none
}

// Tuple is one end to the other.
type Tuple struct {
	Source, Destination netip.Addr
	SourcePort, Port    uint16
}

// Tuple is the ends that the packet has now.
func (p *Packet) Tuple() Tuple {
	return Tuple{p.Source, p.Destination, p.SourcePort, p.Port}
}

// Arrived is the ends that it had before any rewriting.
func (p *Packet) Arrived() Tuple {
	if p.Original == (Tuple{}) {
		return p.Tuple()
	}
	return p.Original
}

// State is what connection tracking says of a packet.
type State string

// States.
const (
	New         State = "new"
	Established State = "established"
	Related     State = "related"
	Invalid     State = "invalid"
	Untracked   State = "untracked"
)

// Way is the way of a packet through the host.
type Way string

// Ways.
const (
	In      Way = "input"   // to a socket of the host
	Through Way = "forward" // to another host
	Out     Way = "output"  // from a socket of the host
)

// Answer is yes, no or unknown.
type Answer int8

// Answers.
const (
	Unknown Answer = iota
	Yes
	No
)

// Given says of InRoute and OutRoute in a text what is assumed.
func (a Answer) Given() string {
	switch a {
	case Yes:
		return " (when a default route leaves by it)"
	case No:
		return " (when no default route leaves by it)"
	case Unknown:
	}
	return ""
}

// OwnIn is names of zones, parted by blanks, with a "-" before those where an address is
// none of the host's own; of others it is as the host's facts have it.
type OwnIn string

// In says whether it is an address of the host in a zone.
func (o OwnIn) In(zone string) Answer {
	words := strings.Fields(string(o))
	switch {
	case slices.Contains(words, zone):
		return Yes
	case slices.Contains(words, "-"+zone):
		return No
	}
	return Unknown
}

// With takes it for granted of one more zone.
func (o OwnIn) With(zone string, is bool) OwnIn {
	if !is {
		zone = "-" + zone
	}
	return OwnIn(strings.TrimSpace(string(o) + " " + zone))
}

// Fills says whether it is assumed that an address is in a set that another
// program fills.
func (o OwnIn) Fills(set string, a netip.Addr) bool {
	in := o.In(set + "/" + a.String())
	return in == Yes || in == Unknown && o.In(set+"/") == Yes
}

// Given says in a text what is assumed.
func (o OwnIn) Given() string {
	var parts []string
	for _, word := range strings.Fields(string(o)) {
		if zone, none := strings.CutPrefix(word, "-"); none {
			parts = append(parts, "no address of this host in "+zone)
		} else {
			parts = append(parts, "an address of this host in "+zone)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (when that is " + strings.Join(parts, " and ") + ")"
}

// Is is an Answer from what is known.
func Is(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// IANA protocol numbers.
const (
	ICMP    = 1
	TCP     = 6
	UDP     = 17
	DCCP    = 33
	ICMPv6  = 58
	SCTP    = 132
	UDPLite = 136
)

// TCP flags.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Family is 4 or 6, of the destination.
func (p *Packet) Family() int {
	if p.Destination.Is4() || p.Destination.Is4In6() {
		return 4
	}
	return 6
}

// Moment is when the packet passes, in seconds since 1970.
func (p *Packet) Moment() int64 {
	if p.Time != 0 {
		return p.Time
	}
	return time.Now().Unix()
}

// HasPorts says that the protocol has ports.
func (p *Packet) HasPorts() bool {
	switch p.Protocol {
	case TCP, UDP, DCCP, SCTP, UDPLite:
		return true
	}
	return false
}

// Begins says whether the packet is the first of a flow that is tracked: new, or one
// that another flow expects, which is related. NAT is asked of these alone
// (nf_nat_inet_fn). ICMP that is related is an error about a known flow.
func (p *Packet) Begins() bool {
	return p.State == New || p.State == Related && p.Protocol != ICMP && p.Protocol != ICMPv6
}

// Mirror is the answer to a packet: ends and interfaces change places.
func (p Packet) Mirror() Packet {
	p.In, p.Out = p.Out, p.In
	p.InRoute, p.OutRoute, p.Own = p.OutRoute, p.InRoute, ""
	p.Source, p.Destination = p.Destination, p.Source
	p.SourcePort, p.Port = p.Port, p.SourcePort
	p.SourceLocal, p.DestinationLocal = p.DestinationLocal, p.SourceLocal
	p.Reply = !p.Reply
	return p
}
