package program

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
)

// Field is what a condition looks at.
type Field string

// Fields. The comment says which member of Condition holds the values.
const (
	InInterface  Field = "in-interface"  // Names; a trailing * is a wildcard; DefaultRoute
	OutInterface Field = "out-interface" // Names
	LinkType     Field = "link-type"     // Numbers, ARPHRD_*
	VLAN         Field = "vlan"          // Numbers

	Family      Field = "family"           // Numbers: 4 or 6
	Source      Field = "source"           // Addresses or Set
	Destination Field = "destination"      // Addresses or Set
	Protocol    Field = "protocol"         // Numbers, IANA; IPv6: the last header
	SourcePort  Field = "source-port"      // Numbers; needs Protocol
	Port        Field = "port"             // Numbers; the destination's; needs Protocol
	ICMPType    Field = "icmp-type"        // Numbers; needs Protocol 1
	ICMPCode    Field = "icmp-code"        // Numbers; needs Protocol 1
	ICMPv6Type  Field = "icmpv6-type"      // Numbers; needs Protocol 58
	ICMPv6Code  Field = "icmpv6-code"      // Numbers; needs Protocol 58
	TCPFlags    Field = "tcp-flags"        // Numbers: the value under Mask; needs Protocol 6
	Fragment    Field = "fragment"         // Numbers: 1 for other than the first fragment
	Extension   Field = "extension-header" // Numbers: IPv6 next header present
	Length      Field = "length"           // Numbers, bytes
	DSCP        Field = "dscp"             // Numbers
	HopLimit    Field = "hop-limit"        // Numbers; IPv6 only

	State               Field = "state"                // Names: new established related invalid untracked
	Direction           Field = "direction"            // Names: original reply
	Status              Field = "status"               // Names: dnat snat confirmed assured; those of [Label], [Socket], [Demultiplexed] and [Closed]
	OriginalSource      Field = "original-source"      // Addresses or Set: the tuple before NAT
	OriginalDestination Field = "original-destination" // Addresses or Set
	OriginalPort        Field = "original-port"        // Numbers: the destination port before NAT

	Mark            Field = "mark"             // Numbers under Mask
	SourceType      Field = "source-type"      // Names: local broadcast multicast unicast; what the routing table says of the source
	DestinationType Field = "destination-type" // Names, of the destination
	DestinationHere Field = "destination-here" // Names as DestinationType, asked of the incoming interface alone
	Owner           Field = "owner"            // Numbers: user id of the local socket
	Time            Field = "time"             // Numbers: whole seconds since 1970 at which the packet passes
	Opaque          Field = "opaque"           // Text; never proved
)

// Names of a connection's status beside those of the kernel.
const (
	// Socket says of a packet to this host that a look-up finds a socket of its
	// connection or one that listens, but no request for a connection
	// (nft_socket_eval of net/netfilter/nft_socket.c).
	Socket = "socket"
	// Demultiplexed says that the kernel knew the packet's socket before any rule,
	// which it looks for among connections alone, requests included
	// (tcp_v4_early_demux). With Socket it says that the host's own stack has
	// completed the handshake.
	Demultiplexed = "demultiplexed"
	// Closed says that connection tracking has seen a reset end the connection, with
	// the very number that the other side expects: its entry then lasts no longer than
	// such do, 10 s unless the host's own settings are others
	// (nf_conntrack_tcp_timeout_close). Asked of another packet than a reset it may be
	// anything that ends.
	Closed      = "closed"
	labelPrefix = "label-"
)

// Label is the name of a bit of the connection's label, as a status.
func Label(bit uint8) string { return labelPrefix + strconv.Itoa(int(bit)) }

// LabelBit is the bit of such a name.
func LabelBit(name string) (bit uint8, is bool) {
	text, is := strings.CutPrefix(name, labelPrefix)
	n, err := strconv.ParseUint(text, 10, 7)
	return uint8(n), is && err == nil
}

// Condition holds when the field has one of the values, or is in the set; Not
// turns it round. Exactly one of Names, Numbers, Addresses, Set, Text is used.
type Condition struct {
	Field     Field
	Not       bool
	Names     []string
	Numbers   []NumberRange
	Addresses []addrset.Range
	Mask      uint64 // TCPFlags and Mark; 0 is all bits
	Set       string // id of a set
	// SetKey, where the set has more than one key: the fields whose values
	// together are asked for; Field is then the first of them.
	SetKey []Field
	Text   string
}

// MergeNumbers sorts ranges and joins those that overlap or touch.
func MergeNumbers(ranges []NumberRange) []NumberRange {
	ranges = slices.Clone(ranges)
	sorting.By(ranges, func(a, b NumberRange) int { return cmp.Compare(a.From, b.From) })
	var out []NumberRange
	for _, r := range ranges {
		if n := len(out); n > 0 && (r.From <= out[n-1].To || r.From == out[n-1].To+1) {
			out[n-1].To = max(out[n-1].To, r.To)
			continue
		}
		out = append(out, r)
	}
	return out
}
