package testnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/packet"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// The builders return whole IP packets with right checksums, of the family of
// their addresses. They panic on what cannot be a packet (mixed families),
// since that is a mistake in a test.

const hops = 64

// TCP builds a segment. Flags are letters: S(YN) A(CK) F(IN) R(ESET) P(USH) U(RGENT).
func TCP(from, to netip.AddrPort, flags string, payload ...byte) []byte {
	return Segment(from, to, flags, 1000, 2000, payload...)
}

// Segment is TCP with its numbers; ack counts where the flags have an A.
func Segment(from, to netip.AddrPort, flags string, sequence, ack uint32, payload ...byte) []byte {
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()),
		Seq: sequence, Window: 65535,
		SYN: strings.Contains(flags, "S"), ACK: strings.Contains(flags, "A"),
		FIN: strings.Contains(flags, "F"), RST: strings.Contains(flags, "R"),
		PSH: strings.Contains(flags, "P"), URG: strings.Contains(flags, "U"),
	}
	if tcp.ACK {
		tcp.Ack = ack
	}
	return build(from.Addr(), to.Addr(), layers.IPProtocolTCP, hops, tcp, gopacket.Payload(payload))
}

// SYN builds a bare SYN with a maximum segment size option.
func SYN(from, to netip.AddrPort, mss uint16) []byte {
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: 1000, Window: 65535, SYN: true,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, mss)}},
	}
	return build(from.Addr(), to.Addr(), layers.IPProtocolTCP, hops, tcp)
}

// UDP builds a datagram.
func UDP(from, to netip.AddrPort, payload ...byte) []byte {
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	return build(from.Addr(), to.Addr(), layers.IPProtocolUDP, hops, udp, gopacket.Payload(payload))
}

// Protocol builds a packet of any protocol, such as 112 for VRRP.
func Protocol(from, to netip.Addr, proto uint8, payload ...byte) []byte {
	return build(from, to, layers.IPProtocol(proto), hops, gopacket.Payload(payload))
}

// ICMP builds a message of any type and code; rest is what follows the
// checksum (four bytes of header at the least).
func ICMP(from, to netip.Addr, kind, code uint8, rest ...byte) []byte {
	return icmp(from, to, hops, kind, code, rest)
}

// Echo builds an echo request of the addresses' family.
func Echo(from, to netip.Addr, id, sequence uint16) []byte {
	kind := uint8(layers.ICMPv4TypeEchoRequest)
	if from.Is6() {
		kind = layers.ICMPv6TypeEchoRequest
	}
	return ICMP(from, to, kind, 0, append(idSequence(id, sequence), "sixteen bytes...."...)...)
}

func idSequence(id, sequence uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, id), sequence)
}

// TooBig builds the error that path MTU discovery lives by, about a packet, which it
// quotes.
func TooBig(from, to netip.Addr, mtu uint32, quoted []byte) []byte {
	kind, code, limit := uint8(layers.ICMPv6TypePacketTooBig), uint8(0), 1280-48
	if from.Is4() {
		kind, code, limit = layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded, 548 // RFC 1812: at most 576 bytes in all
	}
	return ICMP(from, to, kind, code, append(binary.BigEndian.AppendUint32(nil, mtu), quoted[:min(len(quoted), limit)]...)...)
}

// NeighborSolicitation asks, from one address, for the link-layer address of
// another, at the solicited-node multicast address.
func NeighborSolicitation(from, target netip.Addr, mac net.HardwareAddr) []byte {
	t := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], t[13:])
	rest := append(make([]byte, 4), t[:]...)
	rest = append(append(rest, 1, 1), mac...)
	return icmp(from, netip.AddrFrom16(group), 255, layers.ICMPv6TypeNeighborSolicitation, 0, rest)
}

// MLDQuery builds a general multicast listener query of version 1, as routers
// and snooping switches send it.
func MLDQuery(from netip.Addr) []byte {
	return routerAlert(icmp(from, netip.MustParseAddr("ff02::1"), 1, 130, 0, make([]byte, 20)))
}

// routerAlert puts the hop-by-hop header into an IPv6 packet that RFC 3810,
// section 5, asks of every MLD message; hosts ignore those without.
func routerAlert(packet []byte) []byte {
	option := []byte{packet[6], 0, 5, 2, 0, 0, 1, 0} // router alert for MLD, padding of two bytes
	out := slices.Concat(packet[:40], option, packet[40:])
	out[6] = byte(layers.IPProtocolIPv6HopByHop)
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
	return out
}

// DHCPAnswer builds the offer of a DHCP server to a client (udp/67 to 68).
func DHCPAnswer(server, client netip.Addr, mac net.HardwareAddr) []byte {
	dhcp := &layers.DHCPv4{
		Operation: layers.DHCPOpReply, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: 7,
		YourClientIP: client.AsSlice(), ClientHWAddr: mac,
		Options: layers.DHCPOptions{
			layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeOffer)}),
			layers.NewDHCPOption(layers.DHCPOptServerID, server.AsSlice()),
		},
	}
	udp := &layers.UDP{SrcPort: 67, DstPort: 68}
	return build(server, client, layers.IPProtocolUDP, hops, udp, dhcp)
}

// DHCPv6Answer builds the reply of a DHCPv6 server to a client (udp/547 to 546).
func DHCPv6Answer(server, client netip.Addr) []byte {
	udp := &layers.UDP{SrcPort: 547, DstPort: 546}
	return build(server, client, layers.IPProtocolUDP, hops, udp, &layers.DHCPv6{MsgType: layers.DHCPv6MsgTypeReply, TransactionID: []byte{1, 2, 3}})
}

// Fragments cuts a packet into fragments of at most size bytes of payload,
// a multiple of 8.
func Fragments(packet []byte, id uint32, size int) [][]byte {
	if packet[0]>>4 == 4 {
		return fragments4(packet, uint16(id), size)
	}
	return fragments6(packet, id, size)
}

func fragments4(p []byte, id uint16, size int) (out [][]byte) {
	header, payload := p[:20], p[20:]
	for at := 0; at < len(payload); at += size {
		end, more := min(at+size, len(payload)), uint16(0x2000)
		if end == len(payload) {
			more = 0
		}
		f := append(append([]byte(nil), header...), payload[at:end]...)
		binary.BigEndian.PutUint16(f[2:], uint16(len(f)))
		binary.BigEndian.PutUint16(f[4:], id)
		binary.BigEndian.PutUint16(f[6:], uint16(at/8)|more)
		binary.BigEndian.PutUint16(f[10:], 0)
		binary.BigEndian.PutUint16(f[10:], packet.Checksum(f[:20]))
		out = append(out, f)
	}
	return out
}

func fragments6(packet []byte, id uint32, size int) (out [][]byte) {
	header, payload := packet[:40], packet[40:]
	for at := 0; at < len(payload); at += size {
		end, more := min(at+size, len(payload)), uint16(1)
		if end == len(payload) {
			more = 0
		}
		f := append([]byte(nil), header...)
		f = append(f, header[6], 0)
		f = binary.BigEndian.AppendUint16(f, uint16(at)|more)
		f = binary.BigEndian.AppendUint32(f, id)
		f = append(f, payload[at:end]...)
		f[6] = byte(layers.IPProtocolIPv6Fragment)
		binary.BigEndian.PutUint16(f[4:], uint16(len(f)-40))
		out = append(out, f)
	}
	return out
}

func icmp(from, to netip.Addr, ttl, kind, code uint8, rest []byte) []byte {
	message := append([]byte{kind, code, 0, 0}, rest...)
	if from.Is4() {
		binary.BigEndian.PutUint16(message[2:], packet.Checksum(message))
		return build(from, to, layers.IPProtocolICMPv4, ttl, gopacket.Payload(message))
	}
	// RFC 8200, section 8.1: the checksum covers a pseudo header
	src, dst := from.As16(), to.As16()
	pseudo := append(append(append([]byte(nil), src[:]...), dst[:]...), 0, 0, 0, 0, 0, 0, 0, byte(layers.IPProtocolICMPv6))
	binary.BigEndian.PutUint32(pseudo[32:], uint32(len(message)))
	binary.BigEndian.PutUint16(message[2:], packet.Checksum(append(pseudo, message...)))
	return build(from, to, layers.IPProtocolICMPv6, ttl, gopacket.Payload(message))
}

func build(from, to netip.Addr, proto layers.IPProtocol, ttl uint8, rest ...gopacket.SerializableLayer) []byte {
	if from.Is4() != to.Is4() {
		panic(fmt.Sprintf("no packet goes from %s to %s", from, to))
	}
	var ip gopacket.SerializableLayer
	var network gopacket.NetworkLayer
	if from.Is4() {
		h := &layers.IPv4{Version: 4, IHL: 5, TTL: ttl, Id: 0x5a5a, Protocol: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		ip, network = h, h
	} else {
		h := &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
		ip, network = h, h
	}
	for _, layer := range rest {
		if l, ok := layer.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := l.SetNetworkLayerForChecksum(network); err != nil {
				panic(err)
			}
		}
	}
	buf := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, options, append([]gopacket.SerializableLayer{ip}, rest...)...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// Packet is what tests ask of a packet that was seen.
type Packet struct {
	Source, Destination netip.Addr
	Protocol            uint8
	SourcePort          uint16 // TCP and UDP
	DestinationPort     uint16 // TCP and UDP
	Flags               string // TCP, letters as in TCP
	MSS                 uint16 // TCP, 0 when there is none
	ICMPType, ICMPCode  uint8
	Payload             []byte // what follows the transport header; of ICMP, what follows the checksum
	Fragment            bool   // any fragment; only the first has ports
}

// From is source address and port.
func (p Packet) From() netip.AddrPort { return netip.AddrPortFrom(p.Source, p.SourcePort) }

// To is destination address and port.
func (p Packet) To() netip.AddrPort { return netip.AddrPortFrom(p.Destination, p.DestinationPort) }

func (p Packet) String() string {
	switch p.Protocol {
	case uint8(layers.IPProtocolTCP):
		return fmt.Sprintf("tcp %s > %s [%s]", p.From(), p.To(), p.Flags)
	case uint8(layers.IPProtocolUDP):
		return fmt.Sprintf("udp %s > %s", p.From(), p.To())
	case uint8(layers.IPProtocolICMPv4), uint8(layers.IPProtocolICMPv6):
		return fmt.Sprintf("icmp %s > %s type %d code %d", p.Source, p.Destination, p.ICMPType, p.ICMPCode)
	}
	return fmt.Sprintf("protocol %d %s > %s", p.Protocol, p.Source, p.Destination)
}

// Parse reads an IP packet.
func Parse(b []byte) (Packet, error) {
	if len(b) == 0 {
		return Packet{}, errors.New("empty packet")
	}
	var p Packet
	switch b[0] >> 4 {
	case 4:
		var ip layers.IPv4
		if err := ip.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			return p, err
		}
		p.Source, _ = netip.AddrFromSlice(ip.SrcIP)
		p.Destination, _ = netip.AddrFromSlice(ip.DstIP)
		p.Protocol = uint8(ip.Protocol)
		p.Fragment = ip.FragOffset != 0 || ip.Flags&layers.IPv4MoreFragments != 0
		if ip.FragOffset == 0 {
			p.parseTransport(ip.Payload)
		}
	case 6:
		var ip layers.IPv6
		if err := ip.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
			return p, err
		}
		p.Source, _ = netip.AddrFromSlice(ip.SrcIP)
		p.Destination, _ = netip.AddrFromSlice(ip.DstIP)
		p.parseIPv6(layers.IPProtocol(b[6]), b[40:])
	default:
		return p, errors.New("not an IP packet")
	}
	return p, nil
}

// parseIPv6 walks the extension headers that tests send and hosts add (a hop
// by hop header on MLD).
func (p *Packet) parseIPv6(next layers.IPProtocol, b []byte) {
	for {
		p.Protocol = uint8(next)
		switch {
		case next == layers.IPProtocolIPv6Fragment && len(b) >= 8:
			p.Fragment = true
			offset := binary.BigEndian.Uint16(b[2:]) >> 3
			next, b = layers.IPProtocol(b[0]), b[8:]
			if offset != 0 {
				p.Protocol = uint8(next)
				return
			}
		case (next == layers.IPProtocolIPv6HopByHop || next == layers.IPProtocolIPv6Destination || next == layers.IPProtocolIPv6Routing) && len(b) >= 8:
			size := (int(b[1]) + 1) * 8
			if size > len(b) {
				return
			}
			next, b = layers.IPProtocol(b[0]), b[size:]
		default:
			p.parseTransport(b)
			return
		}
	}
}

func (p *Packet) parseTransport(b []byte) {
	switch layers.IPProtocol(p.Protocol) {
	case layers.IPProtocolTCP:
		var tcp layers.TCP
		if tcp.DecodeFromBytes(b, gopacket.NilDecodeFeedback) != nil {
			return
		}
		p.SourcePort, p.DestinationPort, p.Payload = uint16(tcp.SrcPort), uint16(tcp.DstPort), tcp.Payload
		for _, f := range []struct {
			set    bool
			letter string
		}{{tcp.SYN, "S"}, {tcp.ACK, "A"}, {tcp.FIN, "F"}, {tcp.RST, "R"}, {tcp.PSH, "P"}, {tcp.URG, "U"}} {
			if f.set {
				p.Flags += f.letter
			}
		}
		for _, o := range tcp.Options {
			if o.OptionType == layers.TCPOptionKindMSS && len(o.OptionData) == 2 {
				p.MSS = binary.BigEndian.Uint16(o.OptionData)
			}
		}
	case layers.IPProtocolUDP:
		var udp layers.UDP
		if udp.DecodeFromBytes(b, gopacket.NilDecodeFeedback) != nil {
			return
		}
		p.SourcePort, p.DestinationPort, p.Payload = uint16(udp.SrcPort), uint16(udp.DstPort), udp.Payload
	case layers.IPProtocolICMPv4, layers.IPProtocolICMPv6:
		if len(b) >= 4 {
			p.ICMPType, p.ICMPCode, p.Payload = b[0], b[1], b[4:]
		}
	default:
		p.Payload = b
	}
}
