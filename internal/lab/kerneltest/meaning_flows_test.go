package kerneltest

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// talk is packets back and forth between two ends, one of which may be the host.
// What one end has got, by what the reference says of it, the other answers.
type talk struct {
	*shooter
	name    string
	came    shot          // the first packet
	left    packet.Packet // the same as the other end got it
	far     int           // where the other end is
	allowed bool
	first   [2]uint32 // TCP: the sequence number of each end's SYN
	next    [2]uint32 // the next sequence number of each end
	window  [2]uint16
	offers  [2]*packet.TCPOptions
	acked   [2]uint32 // the highest of it that the other end has acknowledged; 0 is none
	sent    []*shot   // of which errors may tell
	stray   bool      // what is sent is not part of the connection's course
}

// converse makes one conversation.
func (g *shooter) converse() {
	var rule *policy.Rule
	hook := one(g.Rand, policy.Input, policy.Forward, policy.Output)
	for range 20 {
		if len(g.rules) == 0 {
			break
		}
		i := g.IntN(len(g.rules))
		if rule, hook = g.rules[i], g.hooks[i]; rule.Action == policy.Allow {
			break
		}
	}
	way := map[policy.Hook]packet.Way{policy.Input: packet.In, policy.Forward: packet.Through, policy.Output: packet.Out}[hook]
	first, ok := g.ends(way, rule)
	if !ok {
		return
	}
	p := &first.packet
	g.protocol(p, rule)
	switch p.Protocol {
	case packet.UDP:
	case packet.ICMP, packet.ICMPv6:
		p.Port, p.ICMPType = 0, 8
		if p.Protocol == packet.ICMPv6 {
			p.ICMPType = 128
		} else if g.chance(4) {
			p.ICMPType = 13
		}
		p.ICMPID = g.freshPort()
	default:
		p.Protocol, p.Flags = packet.TCP, packet.SYN
	}
	if p.HasPorts() {
		p.SourcePort = g.freshPort()
	}
	g.lead(&first)
	t := &talk{
		shooter: g, name: fmt.Sprintf("talk %d", len(g.shots)+1), came: first,
		first:  [2]uint32{g.Uint32(), g.Uint32()},
		window: [2]uint16{g.window(), g.window()}, offers: [2]*packet.TCPOptions{g.offer(), g.offer()},
	}
	t.next = t.first
	switch p.Protocol {
	case packet.TCP:
		t.tcp()
	default:
		t.queries()
	}
}

// say adds a packet of one end (0 began the talk).
func (t *talk) say(end int, flags uint8, data string) {
	s := t.came
	p := &s.packet
	if end == 1 {
		s = shot{side: t.far}
		p = &s.packet
		*p = packet.Packet{
			Source: t.left.Destination, Destination: t.left.Source, Protocol: t.left.Protocol, SourcePort: t.left.Port, Port: t.left.SourcePort,
			ICMPID: t.left.ICMPID, Owner: -1,
		}
		switch {
		case t.far == fromHost:
			s.way, p.Owner = packet.Out, 0
		case t.y.local(p.Destination):
			s.way = packet.In
		default:
			s.way = packet.Through
		}
		switch {
		case p.Protocol == packet.ICMPv6:
			p.ICMPType = 129
		case p.Protocol == packet.ICMP && t.left.ICMPType == 13:
			p.ICMPType = 14
		}
	}
	s.flow, p.Flags = t.name, flags
	s.body = []byte(data)
	switch p.Protocol {
	case packet.TCP:
		s.seq, s.ack, s.window, s.options = t.next[end], t.next[1-end], t.window[end], nil
		switch {
		case flags&packet.SYN != 0:
			s.options = t.offers[end]
		case flags&packet.ACK != 0 && t.chance(12): // something between got lost
			lost := one[uint32](t.Rand, 30, 30, 1000, 70_000)
			s.ack -= lost
			s.options = &packet.TCPOptions{SACK: s.ack + one(t.Rand, lost, lost, lost-20, lost+1)}
		}
		if flags&packet.RST != 0 && t.acked[end] != 0 && !t.chance(4) { // a reset that counts is where the other end waits
			s.seq = t.acked[end]
		}
		if t.stray && t.chance(3) { // at the edges of windows, and far outside
			s.seq += one[uint32](t.Rand, 0, 1, ^uint32(0), 1000, tcpWindow-1, tcpWindow, tcpWindow+1, ^uint32(tcpWindow), ^uint32(tcpWindow-1), ^uint32(tcpWindow-2), t.Uint32())
			s.ack += one[uint32](t.Rand, 0, 0, 1, ^uint32(0), 66_000, ^uint32(66_000), ^uint32(66_000-1), ^uint32(66_000-2), t.Uint32())
			s.window = t.shooter.window()
		}
	case packet.ICMP, packet.ICMPv6:
		s.body = append(binary.BigEndian.AppendUint16(nil, p.ICMPID), 0, byte(len(t.sent)))
		s.body = append(s.body, "questionquestion"...)
	}
	t.tell(&s)
	// What does not arrive is neither acknowledged nor followed by more.
	if p.Protocol == packet.TCP && s.want.Verdict == policy.Allow {
		if flags&packet.RST == 0 && !t.stray {
			t.next[end] += uint32(len(data))
			if flags&(packet.SYN|packet.FIN) != 0 {
				t.next[end]++
			}
		}
		if flags&packet.ACK != 0 {
			t.acked[1-end] = s.ack
		}
	}
}

// tell sends what an end says, and notes where the first packet got to.
func (t *talk) tell(s *shot) {
	if !t.add(s) {
		return
	}
	if len(t.sent) == 0 {
		t.left, t.allowed = s.want.Packet, s.want.Verdict == policy.Allow
		t.far = fromHost
		if s.want.Hook != policy.Input && !t.y.local(t.left.Destination) {
			t.far = t.y.route(t.left.Destination)
		}
	}
	t.sent = append(t.sent, s)
}

// again sends a packet of the talk once more.
func (t *talk) again(s *shot) {
	c := *s
	c.raw, c.seen = nil, nil
	t.add(&c)
}

// patience is how often an end goes on although the first packet did not arrive.
func (t *talk) goesOn() bool {
	// What the host asks of itself and nat leads elsewhere is loopback to output,
	// whoever is banned there, and the answers are of a flow that is known.
	toItself := t.came.way == packet.Out && (t.y.local(t.left.Destination) || t.y.local(t.came.packet.Destination))
	return len(t.shots) > 0 && len(t.sent) > 0 && (t.allowed || t.chance(3)) && travels(t.left.Source) && travels(t.left.Destination) && !toItself
}

func (t *talk) tcp() {
	const syn, ack, fin, rst, psh = packet.SYN, packet.ACK, packet.FIN, packet.RST, packet.PSH
	t.say(0, syn, "")
	if !t.goesOn() {
		return
	}
	if t.allowed && t.chance(10) { // refused, and tried again
		later := t.next[1]
		t.next[1] = 0
		t.say(1, rst|ack, "")
		t.next[1], t.sent = later, nil
		t.say(0, syn, "")
	}
	script := []func(){
		func() { t.say(1, syn|ack, "") },
		func() { t.say(0, ack, "") },
		func() { t.say(0, psh|ack, "question") },
		func() { t.say(1, ack, "") },
		func() { t.say(1, psh|ack, "answer") },
		func() { t.say(0, ack, "") },
		func() { t.say(0, fin|ack, "") },
		func() { t.say(1, ack, "") },
		func() { t.say(1, fin|ack, "") },
		func() { t.say(0, ack, "") },
	}
	if t.chance(8) { // both ends open
		script = append([]func(){func() { t.opens(1, syn) }, func() { t.opens(0, syn|ack) }, func() { t.opens(1, syn|ack) }}, script[1:]...)
	}
	for _, step := range script {
		switch t.IntN(12) {
		case 0:
			t.again(t.sent[t.IntN(len(t.sent))])
		case 1:
			t.complain(t.IntN(2))
		case 2:
			if t.allowed && t.chance(2) {
				continue // lost on the way
			}
		case 3:
			if t.allowed && t.chance(2) {
				t.say(t.IntN(2), one[uint8](t.Rand, rst, rst|ack), "")
			}
		case 4:
			if t.allowed && t.chance(2) {
				t.stray = true
				flags := one[uint8](t.Rand, syn, syn|ack, fin|ack, ack, psh|ack, rst, rst|ack, fin, syn|fin, 0)
				t.say(t.IntN(2), flags, one(t.Rand, "", "", "data"))
				t.stray = false
			}
		}
		step()
		if t.chance(12) || t.sent[len(t.sent)-1].want.Verdict != policy.Allow && t.chance(2) {
			break
		}
	}
	if !t.allowed {
		return
	}
	switch t.IntN(4) {
	case 0: // the same ends once more
		t.next[0] += 1 << 20
		t.say(0, syn, "")
		t.say(1, syn|ack, "")
		t.say(0, ack, "")
	case 1:
		t.say(t.IntN(2), rst, "")
		t.say(t.IntN(2), psh|ack, "late")
	}
}

// opens sends the SYN of an end, for the first time or once more.
func (t *talk) opens(end int, flags uint8) {
	t.next[end] = t.first[end]
	t.say(end, flags, "")
}

func (t *talk) queries() {
	t.say(0, 0, "question")
	if !t.goesOn() {
		return
	}
	for range 1 + t.IntN(5) {
		switch t.IntN(6) {
		case 0:
			t.again(t.sent[t.IntN(len(t.sent))])
		case 1:
			t.complain(t.IntN(2))
		case 2, 3:
			t.say(0, 0, "question")
		default:
			t.say(1, 0, "answer")
		}
	}
}

// complain sends an error about the last packet of an end that got through, from
// somewhere on its way.
func (t *talk) complain(end int) {
	var about *shot
	for _, s := range t.sent {
		fromFirst := s.packet.Source == t.came.packet.Source && s.side == t.came.side
		if s.want.Verdict == policy.Allow && fromFirst == (end == 0) {
			about = s
		}
	}
	if about == nil {
		return
	}
	quoted := about.want.Packet
	s := shot{side: t.far, flow: t.name + ", error"}
	if end == 1 {
		s.side = t.came.side
	}
	p := &s.packet
	p.Owner, p.Destination = -1, quoted.Source
	kinds := []uint8{3, 3, 11, 12}
	if p.Protocol = packet.ICMP; quoted.Source.Is6() {
		p.Protocol, kinds = packet.ICMPv6, []uint8{1, 2, 3, 4}
	}
	p.ICMPType = kinds[t.IntN(len(kinds))]
	switch {
	case s.side == fromHost:
		s.way, p.Source, p.Owner = packet.Out, t.own(quoted.Source.Is6()), 0
		if t.y.local(quoted.Destination) {
			p.Source = quoted.Destination
		}
	case t.y.local(p.Destination):
		s.way = packet.In
	default:
		s.way = packet.Through
	}
	if !p.Source.IsValid() {
		var ok bool
		p.Source, ok = until(func() netip.Addr {
			if t.chance(2) {
				return quoted.Destination
			}
			return t.anywhere()
		}, func(a netip.Addr) bool {
			return travels(a) && !t.y.local(a) && !t.special(a) && a.Is6() == p.Destination.Is6()
		})
		if !ok {
			return
		}
	}
	if s.way == packet.Out && t.y.local(p.Destination) || !travels(p.Destination) {
		return
	}
	t.quote(&s, packet.Packet{
		Source: quoted.Source, Destination: quoted.Destination, Protocol: quoted.Protocol, SourcePort: quoted.SourcePort, Port: quoted.Port,
		Flags: quoted.Flags, ICMPType: quoted.ICMPType, ICMPCode: quoted.ICMPCode, ICMPID: quoted.ICMPID, HopLimit: 60,
	})
	t.add(&s)
}
