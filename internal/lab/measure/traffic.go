package measure

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
)

// Flow is the source and the destination of a packet.
type Flow struct{ From, To netip.AddrPort }

// Traffic is what arrives at a lab.
type Traffic struct {
	// Flags are the TCP flags in letters ("S", "SA", "A"); empty for UDP.
	Flags string
	// Payload in bytes; Load takes 18 for 0, so that an IPv4 UDP frame has the 60
	// bytes of the shortest Ethernet frame.
	Payload int
	// Flows are cycled over in order. All are of one family.
	Flows []Flow
	// In is the device by which they come in; "" is the lab's first.
	In string
	// Through: what the rules let through goes on as far as it can, so that connection
	// tracking knows its connection from then on, and so that what leaves by a
	// flowtable is counted as what leaves by the rules. Without it each packet of a new
	// connection is its first.
	Through bool
}

// SourcePort is the port that drawn sources send from: no service's.
const SourcePort = 40000

// UDP is one datagram of each source to one destination.
func UDP(sources []netip.Addr, to netip.AddrPort) Traffic { return traffic("", sources, to) }

// TCP is one segment of each source to one destination. Flags are letters.
func TCP(flags string, sources []netip.Addr, to netip.AddrPort) Traffic {
	return traffic(flags, sources, to)
}

func traffic(flags string, sources []netip.Addr, to netip.AddrPort) Traffic {
	t := Traffic{Flags: flags, Flows: make([]Flow, len(sources))}
	for i, s := range sources {
		t.Flows[i] = Flow{netip.AddrPortFrom(s, SourcePort), to}
	}
	return t
}

// Behind is a host behind the second device of a NewForwardLab, with a port.
func Behind(f addrset.Family, port uint16) netip.AddrPort {
	if f == addrset.IPv6 {
		return netip.AddrPortFrom(netip.MustParseAddr("2001:db8:77::80"), port)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("10.77.0.80"), port)
}

// Target is an address that every lab of NewLab and NewForwardLab has as its own,
// with a port.
func Target(f addrset.Family, port uint16) netip.AddrPort {
	if f == addrset.IPv6 {
		return netip.AddrPortFrom(netip.MustParseAddr(ownIPv6), port)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(ownIPv4), port)
}

// field is a part of the frame that differs between flows.
type field struct {
	at    int // offset in the IP packet, bytes
	size  int // 2, 4 or 16 bytes
	ports bool
	from  func(Flow) []byte
}

// layout says how the frames of a traffic differ: what the XDP program copies
// from an entry of its table, and the sums (RFC 1071, in the byte order of the
// machine) of all else that the two checksums cover.
type layout struct {
	packet  []byte // the IP packet of the first flow
	fields  []field
	stride  int // bytes of an entry, a multiple of 4
	ipv4    bool
	udp     bool
	l3At    int // offset of the header checksum; 0 for IPv6
	l4At    int // offset of the checksum of TCP or UDP
	l3, l4  uint32
	headers int // bytes of the frame up to the payload
}

func layOut(t Traffic) (layout, error) {
	if len(t.Flows) == 0 || len(t.Flows) > 1<<16 {
		return layout{}, fmt.Errorf("a traffic has 1 to %d flows, not %d", 1<<16, len(t.Flows))
	}
	first := t.Flows[0]
	payload := t.Payload
	if payload == 0 {
		payload = 18
	}
	l := layout{ipv4: first.From.Addr().Is4(), udp: t.Flags == ""}
	if l.udp {
		l.packet = testnet.UDP(first.From, first.To, make([]byte, payload)...)
	} else {
		l.packet = testnet.TCP(first.From, first.To, t.Flags, make([]byte, payload)...)
	}

	l.hops(t.Through)
	header, size, source := 40, 16, 8
	if l.ipv4 {
		header, size, source = 20, 4, 12
		l.l3At = 10
	}
	l.l4At = header + 16
	if l.udp {
		l.l4At = header + 6
	}
	all := []field{
		{source, size, false, func(f Flow) []byte { return f.From.Addr().AsSlice() }},
		{source + size, size, false, func(f Flow) []byte { return f.To.Addr().AsSlice() }},
		{header, 2, true, func(f Flow) []byte { return binary.BigEndian.AppendUint16(nil, f.From.Port()) }},
		{header + 2, 2, true, func(f Flow) []byte { return binary.BigEndian.AppendUint16(nil, f.To.Port()) }},
	}
	for _, f := range all {
		if differs(t.Flows, f) {
			l.fields = append(l.fields, f)
			l.stride += f.size
		}
	}
	l.stride = (l.stride + 3) &^ 3
	l.sums(header)
	l.headers = 14 + header + 20
	if l.udp {
		l.headers = 14 + header + 8
	}
	for i, f := range t.Flows {
		if f.From.Addr().Is4() != l.ipv4 || f.To.Addr().Is4() != l.ipv4 {
			return layout{}, fmt.Errorf("flow %d is not of the family of the first", i)
		}
	}
	return l, nil
}

// hops sets the hop limit by which the drain knows a packet, and with it the
// header checksum.
func (l *layout) hops(through bool) {
	limit := byte(hopsNew)
	if through {
		limit = hopsThrough
	}
	if !l.ipv4 {
		l.packet[7] = limit
		return
	}
	l.packet[8] = limit
	l.packet[10], l.packet[11] = 0, 0
	sum := uint32(0)
	for at := 0; at < 20; at += 2 {
		sum += uint32(binary.BigEndian.Uint16(l.packet[at:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(l.packet[10:], ^uint16(sum&0xffff+sum>>16))
}

func differs(flows []Flow, f field) bool {
	first := string(f.from(flows[0]))
	for _, flow := range flows[1:] {
		if string(f.from(flow)) != first {
			return true
		}
	}
	return false
}

// sums computes what the checksums cover beside the fields that the program
// writes. The right checksum of a packet is the complement of the
// sum of everything, so the rest is what is left when the fields are removed.
func (l *layout) sums(header int) {
	word := func(at int) uint32 { return uint32(binary.NativeEndian.Uint16(l.packet[at:])) }
	rest := func(checksumAt int, ports bool) uint32 {
		sum := uint32(^uint16(word(checksumAt)))
		for _, f := range l.fields {
			if f.ports && !ports {
				continue
			}
			for at := f.at; at < f.at+f.size; at += 2 {
				sum += uint32(^uint16(word(at))) // subtraction in ones' complement
			}
		}
		return sum
	}
	if l.ipv4 {
		l.l3 = rest(l.l3At, false)
	}
	l.l4 = rest(l.l4At, true)
}

// table is one entry after another, as the program reads them.
func (l *layout) table(flows []Flow) []byte {
	out := make([]byte, 0, len(flows)*l.stride)
	for _, flow := range flows {
		start := len(out)
		for _, f := range l.fields {
			out = append(out, f.from(flow)...)
		}
		out = append(out, make([]byte, l.stride-(len(out)-start))...)
	}
	return out
}

// frame is the frame of the first flow, as it comes to a device of a lab.
func (l *layout) frame() []byte {
	kind := uint16(unix.ETH_P_IPV6)
	if l.ipv4 {
		kind = unix.ETH_P_IP
	}
	return slices.Concat(macHere, macFar, binary.BigEndian.AppendUint16(nil, kind), l.packet)
}

// frames are those of all flows, as the program would write them.
func (l *layout) frames(flows []Flow) [][]byte {
	out := make([][]byte, len(flows))
	for i, flow := range flows {
		out[i] = l.frame()
		p := out[i][14:]
		l3, l4 := uint64(l.l3), uint64(l.l4)
		for _, f := range l.fields {
			value := f.from(flow)
			copy(p[f.at:], value)
			for at := 0; at < len(value); at += 2 {
				word := uint64(binary.NativeEndian.Uint16(value[at:]))
				l4 += word
				if !f.ports {
					l3 += word
				}
			}
		}
		if len(l.fields) > 0 {
			if l.ipv4 {
				binary.NativeEndian.PutUint16(p[l.l3At:], folded(l3))
			}
			sum := folded(l4)
			if l.udp && sum == 0 {
				sum = 0xffff
			}
			binary.NativeEndian.PutUint16(p[l.l4At:], sum)
		}
	}
	return out
}

func folded(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
