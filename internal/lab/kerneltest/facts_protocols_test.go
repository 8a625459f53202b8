package kerneltest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/packet"
)

// protocolShot is a packet from outside to the yard's host.
func protocolShot(id uint32, v6 bool, protocol uint8, body string) *shot {
	s := &shot{id: id, side: wan0, way: packet.In, window: tcpWindow, body: []byte(body), packet: packet.Packet{
		Source: netip.MustParseAddr("192.0.2.7"), Destination: netip.MustParseAddr("198.51.100.1"), Protocol: protocol,
		SourcePort: 4000 + uint16(id), Port: 22, Flags: packet.SYN, HopLimit: hops,
	}}
	if v6 {
		s.packet.Source, s.packet.Destination = netip.MustParseAddr("2001:db8:99::7"), netip.MustParseAddr("2001:db8:100::1")
	}
	s.build()
	return s
}

// Connection tracking reckons the sum of UDP-Lite as that of UDP
// (udplite_error of nf_conntrack_proto_udp.c), and of IPv4 with the length cut to a byte
// (nf_ip_checksum_partial of net/netfilter/utils.c). So UDP-Lite from outside is
// invalid, and let in by a policy alone that has "invalid: allow". The random packets
// have the sum of UDP. When this test fails, they may have their own, and be long.
func TestFactUDPLite(t *testing.T) {
	y := newYard(t)
	y.host.Nft("add table inet t; add chain inet t c { type filter hook input priority 0; policy drop; }; add rule inet t c meta l4proto udplite ct state new accept")
	for _, v6 := range []bool{false, true} {
		wrong, right := protocolShot(1, v6, udpLite, "datagram"), protocolShot(2, v6, udpLite, "datagram")
		b := right.raw[0]
		at := len(b) - len("datagram") - 2
		sum := uint32(^binary.BigEndian.Uint16(b[at:])) + udpLite - packet.UDP
		binary.BigEndian.PutUint16(b[at:], ^uint16(sum+sum>>16))
		y.send([]*shot{wrong, right})
		if len(wrong.seen) != 1 || len(right.seen) != 0 {
			t.Errorf("IPv6 %v: with the sum of UDP %v, with its own %v", v6, wrong.seen, right.seen)
		}
	}
}

// A rule meets AH as the protocol in both families (nft_set_pktinfo_ipv6 stops at
// it), and connection tracking looks behind it in IPv6 alone (ipv6_skip_exthdr). So
// no port of what is behind AH can be let in, and a policy lets in proto/51.
func TestFactAuthentication(t *testing.T) {
	y := newYard(t)
	y.host.Nft("add table inet t; add chain inet t c { type filter hook input priority 0; policy drop; }; add rule inet t c tcp dport 22 accept; add rule inet t c meta l4proto ah ct state new accept")
	for _, v6 := range []bool{false, true} {
		for _, flags := range []uint8{packet.SYN, packet.RST} {
			s := protocolShot(1, v6, packet.TCP, "")
			s.packet.Flags = flags
			s.build()
			b := s.raw[0]
			header := 20
			if v6 {
				header = 40
			}
			ah := append([]byte{packet.TCP, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, make([]byte, 12)...)
			b = slices.Concat(b[:header], ah, b[header:])
			if v6 {
				b[6] = authentication
				binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
			} else {
				b[9] = authentication
				binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
				binary.BigEndian.PutUint16(b[10:], 0)
				binary.BigEndian.PutUint16(b[10:], packet.Checksum(b[:20]))
			}
			s.raw, s.packet.Protocol = [][]byte{b}, authentication
			y.forget()
			y.send([]*shot{s})
			// A reset opens nothing, where anybody looks.
			if passes := !v6 || flags == packet.SYN; (len(s.seen) == 1) != passes {
				t.Errorf("IPv6 %v, %s behind AH: %v", v6, flagsText(flags), s.seen)
			}
		}
	}
}
