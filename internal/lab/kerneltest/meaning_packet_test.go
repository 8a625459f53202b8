package kerneltest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
)

// shot is one packet of a run: what the judges are told of it, how it is sent, and
// what was seen of it. Its number is in the header of IP, as identification or flow
// label, which no rewriting touches.
type shot struct {
	id     uint32 // from 1; of one run at most 60,000
	side   int    // whose wire it comes by, or fromHost
	way    packet.Way
	packet packet.Packet
	seq    uint32 // TCP
	ack    uint32
	window uint16
	// options are of TCP: what its header has behind the first 20 bytes.
	options *packet.TCPOptions
	body    []byte // what follows the header of transport; of ICMP, what follows type, code and checksum
	raw     [][]byte
	pieces  int            // fragments that it is sent in; 0 is whole
	padded  bool           // IPv6: with a header of destination options before that of transport
	flow    string         // of the conversation that it is part of, "" is none
	want    reference.Path // what the reference says of it
	// crowded says that another flow would have the same addresses and ports behind a
	// rewritten source: the kernel then gives one of them another port.
	crowded bool
	seen    []sighting
}

// sighting is the packet, or an answer to it, where it was seen.
type sighting struct {
	at     int  // whose wire it left by, or came in by where it was taken
	taken  bool // by the input hook of the host; at is fromHost where by loopback
	answer string
	packet packet.Packet
}

func (s sighting) String() string {
	where := "left by " + deviceName(s.at)
	if s.taken {
		where = "taken in from " + deviceName(s.at)
	}
	if s.answer != "" {
		return fmt.Sprintf("%s: %s of %s", where, s.answer, s.packet.Source)
	}
	return fmt.Sprintf("%s as %s", where, header(s.packet))
}

func deviceName(at int) string {
	if at == fromHost {
		return "lo"
	}
	return yardDevices[at].name
}

// header is what of a packet's header can be rewritten, and what it is.
func header(p packet.Packet) string {
	at := func(a netip.Addr, port uint16) string {
		if p.HasPorts() {
			return netip.AddrPortFrom(a, port).String()
		}
		return a.String()
	}
	text := fmt.Sprintf("%s > %s", at(p.Source, p.SourcePort), at(p.Destination, p.Port))
	switch p.Protocol {
	case packet.TCP:
		return fmt.Sprintf("tcp %s [%s]", text, flagsText(p.Flags))
	case packet.UDP:
		return "udp " + text
	case packet.ICMP, packet.ICMPv6:
		return fmt.Sprintf("icmp %s type %d code %d id %d", text, p.ICMPType, p.ICMPCode, p.ICMPID)
	}
	return fmt.Sprintf("protocol %d %s", p.Protocol, text)
}

func flagsText(flags uint8) string {
	var b strings.Builder
	for i, letter := range "FSRPAUEC" {
		if flags>>i&1 == 1 {
			b.WriteRune(letter)
		}
	}
	return b.String()
}

// String is the shot as the judges see it.
func (s *shot) String() string {
	text := fmt.Sprintf("#%d %s: %s", s.id, s.way, header(s.packet))
	if s.side != fromHost {
		text += ", in " + deviceName(s.side)
	} else if s.packet.Owner != 0 {
		text += fmt.Sprintf(", by user %d", s.packet.Owner)
	}
	if s.packet.HopLimit != hops {
		text += fmt.Sprintf(", hop limit %d", s.packet.HopLimit)
	}
	if s.packet.Quoted != nil {
		text += ", about " + header(*s.packet.Quoted)
	}
	if s.pieces > 0 {
		text += fmt.Sprintf(", in %d fragments", s.pieces)
	}
	if s.padded {
		text += ", with destination options"
	}
	if s.flow != "" {
		text += " (" + s.flow
		if s.packet.Protocol == packet.TCP {
			text += fmt.Sprintf(", seq %d ack %d len %d", s.seq, s.ack, len(s.body))
			if s.window != tcpWindow {
				text += fmt.Sprintf(" window %d", s.window)
			}
			if s.options != nil {
				text += fmt.Sprintf(" options %+v", *s.options)
			}
		}
		text += ")"
	}
	return text
}

const hops = 64

// Protocols, by the numbers of IANA.
const (
	dccp               = 33
	gre                = 47
	authentication     = 51
	destinationOptions = 60
	udpLite            = 136
	experimental       = 253 // RFC 3692
)

// tcpWindow is what most segments offer.
const tcpWindow = 0xffff

// segment is where a shot of TCP is in its connection.
func (s *shot) segment() *packet.Segment {
	return &packet.Segment{Seq: s.seq, Ack: s.ack, Data: uint32(len(s.body)), Window: s.window, Options: s.options}
}

// build makes the bytes of the shot.
func (s *shot) build() {
	b := wireBytes(s.packet, s.id, s.segment(), s.body)
	if s.padded {
		options := []byte{b[6], 0, 1, 4, 0, 0, 0, 0} // padding of six bytes (RFC 8200, section 4.2)
		b = slices.Concat(b[:40], options, b[40:])
		b[6] = destinationOptions
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
	}
	s.raw = [][]byte{b}
	if s.pieces > 0 {
		header := 20
		if s.packet.Source.Is6() {
			header = 40
		}
		s.raw = testnet.Fragments(b, s.id, ((len(b)-header)/s.pieces+7)&^7)
	}
}

// wireBytes is a packet on the wire.
func wireBytes(p packet.Packet, id uint32, segment *packet.Segment, body []byte) []byte {
	var t []byte
	sumAt := -1
	switch p.Protocol {
	case packet.TCP:
		t = binary.BigEndian.AppendUint16(t, p.SourcePort)
		t = binary.BigEndian.AppendUint16(t, p.Port)
		t = binary.BigEndian.AppendUint32(t, segment.Seq)
		ack := segment.Ack
		if p.Flags&packet.ACK == 0 {
			ack = 0
		}
		t = binary.BigEndian.AppendUint32(t, ack)
		options := optionBytes(segment.Options)
		t = append(t, byte(5+len(options)/4)<<4, p.Flags)
		t = append(binary.BigEndian.AppendUint16(t, segment.Window), 0, 0, 0, 0)
		t = append(t, options...)
		sumAt = 16
	case packet.UDP:
		t = binary.BigEndian.AppendUint16(t, p.SourcePort)
		t = binary.BigEndian.AppendUint16(t, p.Port)
		t = binary.BigEndian.AppendUint16(t, uint16(8+len(body)))
		t = append(t, 0, 0)
		sumAt = 6
	case packet.ICMP, packet.ICMPv6:
		t = append(t, p.ICMPType, p.ICMPCode, 0, 0)
		sumAt = 2
	case packet.SCTP:
		t = binary.BigEndian.AppendUint16(t, p.SourcePort)
		t = binary.BigEndian.AppendUint16(t, p.Port)
		t = append(t, 0, 0, 0, 0, 0, 0, 0, 0) // tag 0, as INIT has it; the checksum is a CRC over all
	case udpLite: // RFC 3828: the sum covers all; see TestFactUDPLite
		t = binary.BigEndian.AppendUint16(t, p.SourcePort)
		t = binary.BigEndian.AppendUint16(t, p.Port)
		t = append(t, 0, 0, 0, 0)
		sumAt = 6
	case dccp: // RFC 4340: a request for service 1
		t = binary.BigEndian.AppendUint16(t, p.SourcePort)
		t = binary.BigEndian.AppendUint16(t, p.Port)
		t = append(t, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1)
		sumAt = 6
	case gre:
		t = append(t, 0, 0, 8, 0) // RFC 2784: IPv4 within
		if id%2 == 1 {
			t = append(t, 0x30, 1, 0x88, 0x0b, 0, byte(len(body)), byte(id>>8), byte(id), 0, 0, 0, 1)[4:] // RFC 2637
		}
	case authentication:
		t = append(t, experimental, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1) // RFC 4302, section 2
		t = append(t, make([]byte, 12)...)
	default:
		t = append(t, 0, 0)
		sumAt = 0 // answers of reject come to packets alone whose sum is right, whatever the protocol
	}
	t = append(t, body...)
	if p.Protocol == packet.SCTP {
		binary.LittleEndian.PutUint32(t[8:], crc32.Checksum(t, crc32.MakeTable(crc32.Castagnoli)))
	}
	var ip []byte
	if p.Source.Is4() {
		ip = []byte{0x45, p.DSCP << 2}
		ip = binary.BigEndian.AppendUint16(ip, uint16(20+len(t)))
		ip = binary.BigEndian.AppendUint16(ip, uint16(id))
		ip = append(ip, 0, 0, p.HopLimit, p.Protocol, 0, 0)
		ip = append(append(ip, p.Source.AsSlice()...), p.Destination.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], packet.Checksum(ip))
	} else {
		ip = binary.BigEndian.AppendUint32(nil, 6<<28|uint32(p.DSCP)<<22|id&0xfffff)
		ip = binary.BigEndian.AppendUint16(ip, uint16(len(t)))
		ip = append(ip, p.Protocol, p.HopLimit)
		ip = append(append(ip, p.Source.AsSlice()...), p.Destination.AsSlice()...)
	}
	if sumAt >= 0 {
		var pseudo []byte
		if p.Source.Is6() || p.HasPorts() {
			pseudo = append(slices.Clone(p.Source.AsSlice()), p.Destination.AsSlice()...)
			pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(t)))
			pseudo = append(pseudo, 0, 0, 0, p.Protocol)
			if p.Protocol == udpLite { // as tracking reckons it
				pseudo[len(pseudo)-1] = packet.UDP
			}
		}
		sum := packet.Checksum(append(pseudo, t...))
		if sum == 0 && p.Protocol == packet.UDP {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(t[sumAt:], sum)
	}
	return append(ip, t...)
}

// optionBytes are the options of a header of TCP, the segment size first (RFC 9293,
// section 3.1), which every SYN of today says.
func optionBytes(o *packet.TCPOptions) (b []byte) {
	if o == nil {
		return nil
	}
	if o.SACK != 0 { // two blocks
		b = append(b, 1, 1, 5, 18)
		for _, edge := range []uint32{o.SACK - 20, o.SACK - 10, o.SACK - 5, o.SACK} {
			b = binary.BigEndian.AppendUint32(b, edge)
		}
		return b
	}
	b = append(b, 2, 4, 5, 180)
	if o.SACKPermitted {
		b = append(b, 1, 1, 4, 2)
	}
	if o.Scaled {
		b = append(b, 1, 3, 3, o.Scale)
	}
	return b
}

// seenPacket is what can be read of a packet.
type seenPacket struct {
	packet.Packet
	id       uint32
	seq, ack uint32
	later    bool   // a fragment, not the first
	rest     []byte // what follows the first four bytes of ICMP and their like
}

// look reads a packet; it may be cut off.
func look(b []byte) (s seenPacket, ok bool) {
	if len(b) < 20 {
		return s, false
	}
	var t []byte
	switch b[0] >> 4 {
	case 4:
		s.id = uint32(binary.BigEndian.Uint16(b[4:]))
		s.Source, s.Destination = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		s.Protocol, s.HopLimit, s.DSCP = b[9], b[8], b[1]>>2
		s.later = binary.BigEndian.Uint16(b[6:])&0x1fff != 0
		t = b[20:]
	case 6:
		if len(b) < 40 {
			return s, false
		}
		s.id = binary.BigEndian.Uint32(b) & 0xfffff
		s.Source, s.Destination = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		s.Protocol, s.HopLimit, s.DSCP = b[6], b[7], uint8(binary.BigEndian.Uint32(b)>>22)&0x3f
		t = b[40:]
		if s.Protocol == 44 && len(t) >= 8 {
			s.Protocol = t[0]
			s.later = binary.BigEndian.Uint16(t[2:])>>3 != 0
			t = t[8:]
		}
		if s.Protocol == destinationOptions && len(t) >= 8 {
			s.Protocol, t = t[0], t[8:]
		}
	default:
		return s, false
	}
	if s.later {
		return s, true
	}
	switch {
	case s.Protocol == packet.TCP && len(t) >= 14:
		s.seq, s.ack, s.Flags = binary.BigEndian.Uint32(t[4:]), binary.BigEndian.Uint32(t[8:]), t[13]
	case (s.Protocol == packet.ICMP || s.Protocol == packet.ICMPv6) && len(t) >= 8:
		s.ICMPType, s.ICMPCode, s.rest = t[0], t[1], t[4:]
		if asks(s.Packet) || repliesTo(s.Packet) {
			s.ICMPID = binary.BigEndian.Uint16(t[4:])
		}
	}
	if s.HasPorts() && len(t) >= 4 {
		s.SourcePort, s.Port = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	}
	return s, true
}

// asks says whether a message of ICMP is a question with an id, repliesTo whether
// it is the reply to one.
func asks(p packet.Packet) bool {
	return p.Protocol == packet.ICMP && slices.Contains([]uint8{8, 13, 15, 17}, p.ICMPType) || p.Protocol == packet.ICMPv6 && p.ICMPType == 128
}

func repliesTo(p packet.Packet) bool {
	return p.Protocol == packet.ICMP && slices.Contains([]uint8{0, 14, 16, 18}, p.ICMPType) || p.Protocol == packet.ICMPv6 && p.ICMPType == 129
}

// note keeps what a far end saw.
func (r *run) note(b []byte, at int) {
	s, ok := look(b)
	if !ok || s.later {
		return
	}
	if by, answer := r.answers(s); by != nil {
		by.seen = append(by.seen, sighting{at: at, answer: answer, packet: s.Packet})
		return
	}
	if by := r.by[s.id]; by != nil && by.packet.Protocol == s.Protocol {
		by.seen = append(by.seen, sighting{at: at, packet: s.Packet})
	}
}

// noteTaken keeps what the witness told of.
func (r *run) noteTaken(b []byte, at int) {
	s, ok := look(b)
	if !ok {
		return
	}
	// What came by loopback is an answer of the host to itself.
	if by, answer := r.answers(s); by != nil && at == fromHost {
		by.seen = append(by.seen, sighting{at: at, taken: true, answer: answer, packet: s.Packet})
		return
	}
	if by := r.by[s.id]; by != nil && by.packet.Protocol == s.Protocol {
		by.seen = append(by.seen, sighting{at: at, taken: true, packet: s.Packet})
	}
}

// run is shots that are on the way together.
type run struct {
	by     map[uint32]*shot
	resets map[reset][]*shot
}

// reset is what the kernel's answer to a segment has of it.
type reset struct {
	acks   bool // it acknowledges, since the segment did not
	number uint32
}

func newRun(shots []*shot) *run {
	r := &run{by: make(map[uint32]*shot, len(shots)), resets: make(map[reset][]*shot, len(shots))}
	for _, s := range shots {
		s.seen = nil
		r.by[s.id] = s
		if s.packet.Protocol == packet.TCP {
			r.resets[s.reset()] = append(r.resets[s.reset()], s)
		}
	}
	return r
}

// reset is what a reset in answer to the shot says (RFC 9293, section 3.10.7.1).
func (s *shot) reset() reset {
	if s.packet.Flags&packet.ACK != 0 {
		return reset{false, s.ack}
	}
	n := s.seq + uint32(len(s.body))
	for _, flag := range []uint8{packet.SYN, packet.FIN} {
		if s.packet.Flags&flag != 0 {
			n++
		}
	}
	return reset{true, n}
}

// answers finds the shot that a packet of the kernel's own answers. The kernel's
// resets have no identification, and the errors that are shots quote none.
func (r *run) answers(s seenPacket) (*shot, string) {
	switch {
	case s.Protocol == packet.TCP && s.Flags&packet.RST != 0 && s.id == 0:
		number, acks := s.seq, s.Flags&packet.ACK != 0
		if acks {
			number = s.ack
		}
		return waits(r.resets[reset{acks, number}]), "reset"
	case s.Protocol == packet.ICMP && s.ICMPType == 3 || s.Protocol == packet.ICMPv6 && s.ICMPType == 1:
		if len(s.rest) < 4 {
			break
		}
		if inner, ok := look(s.rest[4:]); ok {
			return r.by[inner.id], fmt.Sprintf("unreachable, code %d", s.ICMPCode)
		}
	}
	return nil, ""
}

// waits is the one of several segments that a reset may answer of which it is most
// likely: those that stand at the same point of a connection get the same answer.
func waits(list []*shot) (found *shot) {
	best := 0
	for _, s := range list {
		n := 1
		switch text, sure := s.answer(); {
		case len(s.seen) > 0:
			n = 0
		case s.want.Answer != nil && s.want.Answer.Verdict != policy.Allow: // output refuses its reset
		case s.want.Verdict == policy.Reject && text != "" && sure:
			n = 3
		case s.want.Verdict == policy.Reject && text != "":
			n = 2
		}
		if n > best || found == nil {
			found, best = s, n
		}
	}
	return found
}
