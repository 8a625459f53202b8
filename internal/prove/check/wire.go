package check

import (
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// notRewritten is the value of the dimension original for a packet that met no
// DNAT; it lies above all services.
const notRewritten = 1 << 32

// noUser is the value of the dimension user for packets of no local socket; it
// lies above all user ids.
const noUser = 1 << 32

// wire numbers what a service is on the wire: protocol times 65536 plus the
// port, the ICMP type, or 0 for protocols that have neither.
func wire(protocol uint8, from, to uint16) span {
	base := uint64(protocol) << 16
	return span{base + uint64(from), base + uint64(to)}
}

// wholeProtocol is everything of one protocol.
func wholeProtocol(protocol uint8) span {
	switch protocol {
	case packet.TCP, packet.UDP, packet.DCCP, packet.SCTP, packet.UDPLite:
		return wire(protocol, 0, 65535)
	case packet.ICMP, packet.ICMPv6:
		return wire(protocol, 0, 255)
	}
	return wire(protocol, 0, 0)
}

var everyServiceOf = map[int]numbers{4: wholeFamily(4), 6: wholeFamily(6)}

// everyService is every protocol of one family: ICMP is IPv4's, ICMPv6 IPv6's.
func everyService(family int) numbers { return everyServiceOf[family] }

func wholeFamily(family int) numbers {
	var all []span
	for p := range 256 {
		if family == 4 && p == packet.ICMPv6 || family == 6 && p == packet.ICMP {
			continue
		}
		all = append(all, wholeProtocol(uint8(p)))
	}
	return numbersOf(all...)
}

// servicesOf is the services of a rule in one family; no service is every one.
func servicesOf(refs []policy.ServiceRef, family int) numbers {
	if len(refs) == 0 {
		return everyService(family)
	}
	var all []span
	for _, ref := range refs {
		for _, m := range ref.Matches {
			if m.Any {
				return everyService(family)
			}
			all = append(all, matchOf(m, family)...)
		}
	}
	return numbersOf(all...).intersect(everyService(family))
}

func matchOf(m policy.ServiceMatch, family int) []span {
	if m.Protocol == packet.ICMP {
		protocol, kind := uint8(packet.ICMP), -1
		if m.ICMP != nil {
			kind = m.ICMP.V4
		}
		if family == 6 {
			protocol = packet.ICMPv6
			if m.ICMP != nil {
				kind = m.ICMP.V6
			}
		}
		switch {
		case m.ICMP == nil:
			return []span{wholeProtocol(protocol)}
		case kind < 0:
			return nil
		}
		return []span{wire(protocol, uint16(kind), uint16(kind))}
	}
	if len(m.Ports) == 0 {
		return []span{wholeProtocol(m.Protocol)}
	}
	var out []span
	for _, p := range m.Ports {
		out = append(out, wire(m.Protocol, p.From, p.To))
	}
	return out
}

// icmpErrors are decided before any rule (RFC 4890 section 4.3.1):
// unreachable and packet too big, time exceeded, parameter problem.
var icmpErrors = map[int]numbers{
	4: numbersOf(wire(packet.ICMP, 3, 3), wire(packet.ICMP, 11, 12)),
	6: numbersOf(wire(packet.ICMPv6, 1, 4)),
}

// portsOf is the ports of services as ranges per protocol.
func portsOf(services numbers) map[uint8][]policy.PortRange {
	ports := map[uint8][]policy.PortRange{}
	for _, s := range services {
		for p := s.from >> 16; p <= s.to>>16; p++ {
			from, to := max(s.from, p<<16), min(s.to, p<<16|0xffff)
			ports[uint8(p)] = append(ports[uint8(p)], policy.PortRange{From: uint16(from), To: uint16(to)})
		}
	}
	return ports
}
