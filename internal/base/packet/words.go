package packet

import (
	"fmt"
	"strings"
)

// protocols are the protocols that packets are described by in words.
var protocols = map[string]uint8{
	"tcp": TCP, "udp": UDP, "sctp": SCTP, "icmp": ICMP, "icmpv6": ICMPv6,
	"igmp": 2, "gre": 47, "esp": 50, "ah": 51, "ospf": 89, "vrrp": 112,
}

// ProtocolNumber is the IANA number of a protocol by its name, such as "tcp".
func ProtocolNumber(name string) (n uint8, known bool) {
	n, known = protocols[name]
	return n, known
}

// ProtocolName is the name of a protocol, or such as "proto/115".
func ProtocolName(n uint8) string {
	for name, number := range protocols {
		if number == n {
			return name
		}
	}
	return fmt.Sprintf("proto/%d", n)
}

// PortProtocol is the number of a protocol that rules name ports of: "tcp", "udp",
// "sctp"; 0 of any other.
func PortProtocol(name string) (n uint8, known bool) {
	for _, n := range []uint8{TCP, UDP, SCTP} {
		if protocols[name] == n {
			return n, true
		}
	}
	return 0, false
}

// PortProtocolName is the name of such a protocol, "" of any other.
func PortProtocolName(n uint8) string {
	switch n {
	case TCP, UDP, SCTP:
		return ProtocolName(n)
	}
	return ""
}

// TransportName is the name of a protocol with ports that rules name, or of ICMP, "" of
// any other.
func TransportName(n uint8) string {
	switch n {
	case TCP, UDP, SCTP, ICMP, ICMPv6:
		return ProtocolName(n)
	}
	return ""
}

// tcpFlags are the flags of TCP, with the names that nft has for them.
var tcpFlags = []struct {
	letter byte
	name   string
	flag   uint8
}{
	{'f', "fin", FIN},
	{'s', "syn", SYN},
	{'r', "rst", RST},
	{'p', "psh", PSH},
	{'a', "ack", ACK},
	{'u', "urg", URG},
	{'e', "ecn", 0x40},
	{'c', "cwr", 0x80},
}

// ParseFlags reads TCP flags as names, "syn,ack", or as letters, "SA"; "none" is no
// flag.
func ParseFlags(text string) (uint8, bool) {
	text = strings.ToLower(text)
	if text == "none" {
		return 0, true
	}
	if out, ok := flagsOf(strings.Split(text, ","), func(i int) string { return tcpFlags[i].name }); ok {
		return out, true
	}
	return flagsOf(strings.Split(text, ""), func(i int) string { return string(tcpFlags[i].letter) })
}

// flagsOf takes each word for the flag that is called so.
func flagsOf(words []string, called func(i int) string) (out uint8, ok bool) {
	for _, word := range words {
		found := false
		for i, f := range tcpFlags {
			if word == called(i) {
				out, found = out|f.flag, true
			}
		}
		if !found {
			return 0, false
		}
	}
	return out, len(words) > 0
}

// FlagsText is TCP flags as ParseFlags reads them.
func FlagsText(f uint8) string {
	var names []string
	for _, l := range tcpFlags {
		if f&l.flag != 0 {
			names = append(names, l.name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}
