package live

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/nftrace"
)

// tableName is that of the own table in the copy.
const tableName = "sluice_question"

// Chains of the own table. Each hook has a first one and a last one.
const (
	markChain  = "second_packet" // where the second packet goes
	firstChain = "_first"
	lastChain  = "_last"
	statePart  = "state_"
)

// Priorities before and behind everything but the confirmation of entries.
const (
	firstPriority = -1 << 31
	statePriority = -199 // NF_IP_PRI_CONNTRACK is -200
	lastPriority  = 1<<31 - 2
)

const (
	markProtocol = 253 // for experiments, RFC 3692
)

// hooks in the order of a packet's way.
var hooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// states are the words of "ct state", by what they stand for.
var states = []packet.State{packet.New, packet.Established, packet.Related, packet.Invalid, packet.Untracked}

// ownTable is the text of the own table for a question. ingress says that the device
// gets a chain at its ingress too.
func ownTable(q *trace.Question, ingress bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n\tchain %s { drop; }\n", tableName, markChain)
	for _, s := range states {
		fmt.Fprintf(&b, "\tchain %s%s { }\n", statePart, s)
	}
	mark := markRule()
	begin := headerMatch(q.Packet) + " meta nftrace set 1"
	if q.Packet.State == packet.Untracked {
		begin += " notrack"
	}
	for _, hook := range hooks {
		var first, last []string
		switch {
		case hook == "prerouting":
			first = append(first, mark)
			if q.Way != packet.Out {
				first = append(first, begin)
			} else {
				first = append(first, headerMatch(q.Packet)+" meta nftrace set 1") // by loopback
			}
		case hook == "output" && (q.Way == packet.Out || q.Packet.In == "lo"):
			first = append(first, begin)
		case hook == "input":
			last = append(last, "drop") // nobody is there, and nobody is to say so
		}
		fmt.Fprintf(&b, "\tchain %s%s { type filter hook %s priority %d; %s }\n", hook, firstChain, hook, firstPriority, lines(first))
		if hook == "prerouting" || hook == "output" {
			fmt.Fprintf(&b, "\tchain %s_state { type filter hook %s priority %d; %s }\n", hook, hook, statePriority, lines([]string{stateMap()}))
		}
		fmt.Fprintf(&b, "\tchain %s%s { type filter hook %s priority %d; %s }\n", hook, lastChain, hook, lastPriority, lines(last))
	}
	b.WriteString("}\n")
	if ingress {
		fmt.Fprintf(&b, "table netdev %s {\n\tchain ingress%s { type filter hook ingress device %q priority %d; %s }\n}\n",
			tableName, firstChain, q.Packet.In, firstPriority, lines([]string{headerMatch(q.Packet) + " meta nftrace set 1"}))
	}
	return b.String()
}

func lines(rules []string) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString(r + "; ")
	}
	return b.String()
}

func stateMap() string {
	var entries []string
	for _, s := range states {
		entries = append(entries, fmt.Sprintf("%s : jump %s%s", s, statePart, s))
	}
	return "ct state vmap { " + strings.Join(entries, ", ") + " }"
}

// headerMatch matches the packet of the question among the few that a copy sees.
func headerMatch(p packet.Packet) string {
	if p.Family() == 4 {
		return fmt.Sprintf("ip saddr %s ip daddr %s ip protocol %d", p.Source.Unmap(), p.Destination.Unmap(), p.Protocol)
	}
	return fmt.Sprintf("ip6 saddr %s ip6 daddr %s", p.Source.WithZone(""), p.Destination.WithZone(""))
}

// quietTable keeps the copy from answering while the first packet of a flow passes.
func quietTable(p packet.Packet) string {
	return fmt.Sprintf(`table inet %s {
	chain %s { drop; }
	chain prerouting%s { type filter hook prerouting priority %d; %s; %s meta nftrace set 1; }
	chain output%s { type filter hook output priority %d; drop; }
}
`, tableName, markChain, firstChain, firstPriority, markRule(), headerMatch(p), firstChain, firstPriority)
}

func markRule() string {
	return fmt.Sprintf("ip protocol %d ip saddr %s ip daddr %s meta nftrace set 1 goto %s", markProtocol, markSource, markDestination, markChain)
}

// markPacket is the second packet, the nth of its kind.
func markPacket(n uint16) []byte {
	b := build(packet.Packet{Source: markSource, Destination: markDestination, Protocol: markProtocol}, sound)
	binary.BigEndian.PutUint16(b[4:], n)
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], packet.Checksum(b[:20]))
	return b
}

// markNumber is which of its kind an event is about.
func markNumber(e nftrace.Event) uint16 {
	if len(e.Network) < 6 {
		return 0
	}
	return binary.BigEndian.Uint16(e.Network[4:])
}

// Ends of the second packet, which goes nowhere.
var markSource, markDestination = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
