package live

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
)

// Numbers that every packet of a question carries.
const (
	identification = 0x51ce // of the IP header, and of ICMP's questions
	usualHopLimit  = 64
	fragmentPlace  = 185 // of another than the first fragment, in units of 8 bytes
	tcpWindow      = 64240
	innerPort      = 40000 // of the packet that an ICMP error speaks of
)

const (
	protoFragment = 44
	protoUDPLite  = 136
)

// defect is what makes connection tracking call a packet invalid.
type defect int

const (
	sound defect = iota
	badChecksum
	badLength
)

// build makes the bytes of a packet, from the IP header on.
func build(p packet.Packet, d defect) []byte {
	body := transport(p, d)
	if p.Fragment {
		body = make([]byte, 8)
	}
	if headers := headerSize(p); p.Length > headers+len(body) && p.Length <= 1<<16-1 && !p.HasPorts() {
		body = slices.Concat(body, make([]byte, p.Length-headers-len(body)))
	}
	hops := p.HopLimit
	if hops == 0 {
		hops = usualHopLimit
	}
	if p.Family() == 4 {
		h := make([]byte, 20, 20+len(body))
		h[0] = 0x45
		h[1] = p.DSCP << 2
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(body))) //nolint:gosec // bounded above
		binary.BigEndian.PutUint16(h[4:], identification)
		if p.Fragment {
			binary.BigEndian.PutUint16(h[6:], fragmentPlace)
		}
		h[8], h[9] = hops, p.Protocol
		copy(h[12:], p.Source.Unmap().AsSlice())
		copy(h[16:], p.Destination.Unmap().AsSlice())
		binary.BigEndian.PutUint16(h[10:], packet.Checksum(h))
		return append(h, body...)
	}
	next := p.Protocol
	if p.Fragment {
		extension := []byte{p.Protocol, 0, 0, 0, 0, 0, 0x51, 0xce}
		binary.BigEndian.PutUint16(extension[2:], fragmentPlace<<3)
		body, next = append(extension, body...), protoFragment
	}
	h := make([]byte, 40, 40+len(body))
	h[0] = 0x60 | p.DSCP>>2
	h[1] = p.DSCP << 6
	binary.BigEndian.PutUint16(h[4:], uint16(len(body))) //nolint:gosec // bounded above
	h[6], h[7] = next, hops
	copy(h[8:], p.Source.AsSlice())
	copy(h[24:], p.Destination.AsSlice())
	return append(h, body...)
}

func headerSize(p packet.Packet) int {
	if p.Family() == 4 {
		return 20
	}
	return 40
}

// transport makes what is behind the IP header.
func transport(p packet.Packet, d defect) []byte {
	switch p.Protocol {
	case packet.TCP:
		b := make([]byte, 20)
		ports(b, p)
		binary.BigEndian.PutUint32(b[4:], 1)
		if p.Flags&packet.ACK != 0 {
			binary.BigEndian.PutUint32(b[8:], 1)
		}
		b[12], b[13] = 5<<4, p.Flags
		binary.BigEndian.PutUint16(b[14:], tcpWindow)
		b = lengthened(b, p)
		return summed(b, 16, p, d)
	case packet.UDP, protoUDPLite:
		b := make([]byte, 16)
		ports(b, p)
		b = lengthened(b, p)
		length := len(b)
		if d == badLength {
			length += 100
		}
		binary.BigEndian.PutUint16(b[4:], uint16(length)) //nolint:gosec // bounded
		return summed(b, 6, p, d)
	case packet.SCTP:
		// A common header with tag 0 and the chunk that begins an association.
		b := make([]byte, 32)
		ports(b, p)
		b[12] = 1
		binary.BigEndian.PutUint16(b[14:], 20)
		binary.BigEndian.PutUint32(b[16:], identification)
		binary.BigEndian.PutUint32(b[20:], tcpWindow)
		binary.BigEndian.PutUint16(b[24:], 1)
		binary.BigEndian.PutUint16(b[26:], 1)
		binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		return b
	case packet.ICMP, packet.ICMPv6:
		b := make([]byte, 8, 64)
		b[0], b[1] = p.ICMPType, p.ICMPCode
		if reportsError(p) {
			inner := build(reported(p), sound)
			b = append(b, inner[:min(len(inner), headerSize(p)+8)]...)
		} else {
			binary.BigEndian.PutUint16(b[4:], icmpID(p))
			binary.BigEndian.PutUint16(b[6:], 1)
			b = append(b, make([]byte, 16)...)
		}
		return summed(b, 2, p, d)
	}
	b := make([]byte, 20)
	if p.HasPorts() {
		ports(b, p)
	}
	return b
}

func ports(b []byte, p packet.Packet) {
	binary.BigEndian.PutUint16(b, p.SourcePort)
	binary.BigEndian.PutUint16(b[2:], p.Port)
}

// lengthened pads a packet with ports to the length that is asked for.
func lengthened(b []byte, p packet.Packet) []byte {
	if more := p.Length - headerSize(p) - len(b); more > 0 && p.Length < 1<<16 {
		b = append(b, make([]byte, more)...)
	}
	return b
}

// reportsError says of ICMP that it speaks of another packet.
func reportsError(p packet.Packet) bool {
	if p.Protocol == packet.ICMP {
		return p.ICMPType == 3 || p.ICMPType == 11 || p.ICMPType == 12
	}
	return p.ICMPType >= 1 && p.ICMPType <= 4
}

func icmpID(p packet.Packet) uint16 {
	if p.ICMPID != 0 {
		return p.ICMPID
	}
	return identification
}

// reported is the packet that an ICMP error speaks of: where nothing is known of it, one
// that its receiver sent.
func reported(p packet.Packet) packet.Packet {
	if p.Quoted != nil {
		return *p.Quoted
	}
	return packet.Packet{
		Source: p.Destination, Destination: p.Source, Protocol: packet.UDP,
		SourcePort: innerPort, Port: innerPort, HopLimit: 1,
	}
}

// summed writes the checksum, with the pseudo header of IPv6 and of TCP and UDP.
func summed(b []byte, at int, p packet.Packet, d defect) []byte {
	covered := b
	if p.Protocol != packet.ICMP {
		covered = append(pseudo(p.Source, p.Destination, p.Protocol, len(b)), b...)
	}
	sum := packet.Checksum(covered)
	if sum == 0 {
		sum = 0xffff
	}
	if d == badChecksum {
		sum ^= 0x5555
	}
	binary.BigEndian.PutUint16(b[at:], sum)
	return b
}

func pseudo(from, to netip.Addr, protocol uint8, length int) []byte {
	h := append(from.Unmap().AsSlice(), to.Unmap().AsSlice()...)
	h = binary.BigEndian.AppendUint32(h, uint32(length)) //nolint:gosec // bounded
	return append(h, 0, 0, 0, protocol)
}
