package live

import (
	"encoding/binary"
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/nftrace"
)

// rewritten is a packet with the header that it has by now, of which the kernel gives
// the beginning; false where there is not enough of it.
func rewritten(p packet.Packet, network, transport []byte) (packet.Packet, bool) {
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		p.Source, p.Destination = addr(network[12:16]), addr(network[16:20])
		p.HopLimit, p.DSCP = network[8], network[1]>>2
	case len(network) >= 40 && network[0]>>4 == 6:
		p.Source, p.Destination = addr(network[8:24]), addr(network[24:40])
		p.HopLimit, p.DSCP = network[7], network[0]<<2&0x3c|network[1]>>6
	default:
		return p, false
	}
	if p.HasPorts() && len(transport) >= 4 && !p.Fragment {
		p.SourcePort, p.Port = binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
	}
	return p, true
}

// headed is the packet that an event gives the headers of; false where it gives none.
func headed(e nftrace.Event) (p packet.Packet, ok bool) {
	p.Owner = -1
	switch n := e.Network; {
	case len(n) >= 20 && n[0]>>4 == 4:
		p.Protocol, p.Length, p.Fragment = n[9], int(binary.BigEndian.Uint16(n[2:])), binary.BigEndian.Uint16(n[6:])&0x1fff != 0
	case len(n) >= 40 && n[0]>>4 == 6:
		p.Protocol, p.Length = n[6], 40+int(binary.BigEndian.Uint16(n[4:])) // of extension headers the first is told alone
	}
	t := e.Transport
	switch {
	case p.Fragment:
	case p.Protocol == packet.TCP && len(t) >= 14:
		p.Flags = t[13]
	case isICMP(p.Protocol) && len(t) >= 2:
		p.ICMPType, p.ICMPCode = t[0], t[1]
	}
	return rewritten(p, e.Network, t)
}

func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// describeAnswer says what a packet that left is, if it refuses the packet of the question:
// a reset or an ICMP error to its sender.
func describeAnswer(p packet.Packet, b []byte) string {
	var protocol uint8
	var to netip.Addr
	var rest []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4 && len(b) >= int(b[0]&15)*4:
		protocol, to, rest = b[9], addr(b[16:20]), b[int(b[0]&15)*4:]
	case len(b) >= 40 && b[0]>>4 == 6:
		protocol, to, rest = b[6], addr(b[24:40]), b[40:]
	}
	if to != p.Source.Unmap() {
		return ""
	}
	switch {
	case protocol == packet.TCP && len(rest) >= 14 && rest[13]&packet.RST != 0 && p.Protocol == packet.TCP:
		return "a TCP reset"
	case protocol == packet.ICMP && len(rest) >= 2:
		return icmpAnswers[[2]uint8{rest[0], rest[1]}]
	case protocol == packet.ICMPv6 && len(rest) >= 2:
		return icmp6Answers[[2]uint8{rest[0], rest[1]}]
	}
	return ""
}

// Errors by type and code, RFC 792, 1122, 1812 and 4443.
var icmpAnswers = map[[2]uint8]string{
	{3, 0}: "ICMP network unreachable", {3, 1}: "ICMP host unreachable", {3, 2}: "ICMP protocol unreachable",
	{3, 3}: "ICMP port unreachable", {3, 4}: "ICMP fragmentation needed", {3, 9}: "ICMP network prohibited",
	{3, 10}: "ICMP host prohibited", {3, 13}: "ICMP administratively prohibited", {11, 0}: "ICMP time exceeded",
}

var icmp6Answers = map[[2]uint8]string{
	{1, 0}: "ICMPv6 no route", {1, 1}: "ICMPv6 administratively prohibited", {1, 3}: "ICMPv6 address unreachable",
	{1, 4}: "ICMPv6 port unreachable", {1, 5}: "ICMPv6 source address failed policy", {1, 6}: "ICMPv6 reject route",
	{2, 0}: "ICMPv6 packet too big", {3, 0}: "ICMPv6 time exceeded",
}
