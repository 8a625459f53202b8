package program

import "net/netip"

// Action is one thing that a rule does. EffectOf answers what all kinds can be asked;
// only who carries actions out, prices or prints them looks at the kind.
type Action interface{ effect() Effect }

// Verdict ends the evaluation of the base chain.
type Verdict string

// Verdicts.
const (
	Accept Verdict = "accept"
	Drop   Verdict = "drop"
	Reject Verdict = "reject" // TCP: reset; others: ICMP port unreachable
	Return Verdict = "return"
)

type (
	// Jump goes on in Chain and comes back at its end.
	Jump struct{ Chain string }
	// Goto goes on in Chain and does not come back to this one.
	Goto struct{ Chain string }
	// VerdictMap looks the packet's Key up in the verdict map Set and takes the
	// verdict of the element. Without one it does nothing.
	VerdictMap struct {
		Set string
		Key []Field
	}
	// NoTrack keeps the packet out of connection tracking.
	NoTrack struct{}
	// Count counts the packet on a named counter.
	Count struct{ Counter string }
	// Log writes to the kernel log, at most Rate; it never ends a rule.
	Log struct {
		Prefix string // as the policy has it, without the owner's
		Rate   Rate
		// Group, where set: to this group of netlink instead, whatever the rate. The prefix
		// is all that is before the packet.
		Group uint16
	}
	// Limit is a gate: it lets a packet through while the rate holds.
	Limit struct {
		Name string // of the bucket or table, stable; rules with one name share it
		Rate Rate
		Per  SourceKey
		// Table is the id of the dynamic set that holds the buckets, for Per
		// other than none. When it is full, the sources that are not in it
		// share one bucket, and FullCounter counts them.
		Table       string
		FullCounter string
		// Ban, where set: a source over its limit is added to the dynamic set
		// Ban for BanTimeout milliseconds and the packet dropped, unless the
		// source is in the set NeverBan ("" is none).
		Ban        string
		BanTimeout uint64
		NeverBan   string
		// Over, where set: the packet of a source that is banned goes on in this
		// chain, as by Goto, instead of being dropped.
		Over string
		// Asks says that the gate counts nothing: it lets through who is not in the
		// dynamic set Table, which holds the sources that are over the limit.
		Asks bool
	}
	// SetLabel turns on one bit of the label of the packet's connection, which lives
	// as long as that: struct nf_conn_labels. A connection that was there before any
	// rule asked for labels has no room for one, and stays without.
	SetLabel struct{ Bit uint8 }
	// ConnectionLimit is a gate: it lets a packet through while the source, or
	// all together, has at most Max tracked connections through this rule.
	ConnectionLimit struct {
		Name        string
		Max         uint32
		Per         SourceKey
		Table       string
		FullCounter string
	}
	// SetAdd adds the packet's key to a dynamic set; where that is full, or the
	// packet has no such key, it ends the rule.
	SetAdd struct {
		Set     string
		Key     SourceKey
		Timeout uint64 // milliseconds
		// Once is a gate: it lets through the packet that puts the key into the set,
		// and none that finds it there. Of packets at the same time one is first.
		Once bool
		// Remove takes the key out instead.
		Remove bool
		// Fields, where set, are the key instead of Key: one for each part of the
		// set's. Of an IPv6 address alone it is the first 64 bits.
		Fields []Field
	}
	// SetMark writes Value under Mask to the packet's mark; a Mask of 0 is all of it.
	SetMark struct{ Value, Mask uint32 }
	// DNAT rewrites the destination; a zero port keeps the packet's own.
	DNAT struct {
		To   netip.Addr
		Port uint16
	}
	// DNATPrefix rewrites the destination's prefix, bit for bit, with state.
	DNATPrefix struct{ From, To netip.Prefix }
	// SNAT rewrites the source. Its port stays where it is one of Ports and no other
	// connection has it; a zero range is all ports of the same kind.
	SNAT struct {
		To    netip.Addr
		Ports NumberRange
	}
	// SNATPrefix rewrites the source's prefix, bit for bit, with state.
	SNATPrefix struct{ From, To netip.Prefix }
	// Masquerade rewrites the source to the address of the outgoing interface, and
	// its port as SNAT does.
	Masquerade struct{ Ports NumberRange }
	// Redirect rewrites the destination to this host itself.
	Redirect struct{ Port uint16 }
	// MapSource rewrites a prefix in the header, without state; what ICMP errors
	// carry inside stays.
	MapSource struct{ From, To netip.Prefix }
	// MapDestination does the same to the destination.
	MapDestination struct{ From, To netip.Prefix }
	// ClampMSS lowers the TCP maximum segment size to what the route carries.
	ClampMSS struct{}
	// Offload hands the flow to a flowtable.
	Offload struct{ Flowtable string }
)

// LogGroup is the netlink log group (NFLOG) that what is logged goes to, where a policy wants
// that. Who reads it knows the line by the rule's id, with which the prefix begins.
const LogGroup = 5171

// LogLength is how many bytes of a packet go there: its headers.
const LogLength = 128

// SourceKey says what stands for a source: none, or its address, of IPv6 the
// first 64 bits.
type SourceKey string

// Source keys.
const (
	Together  SourceKey = ""
	PerSource SourceKey = "source"
	// PerDestination is the same of the destination: who began the connection, in
	// packets that answer.
	PerDestination SourceKey = "destination"
)

// Rate is Packets per Per milliseconds, with Burst packets at once.
type Rate struct {
	Packets uint64
	Per     uint64 // milliseconds
	Burst   uint64
}
