package kerneltest

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
)

// shooter makes the packets of one run: most for a rule of the policy, at the
// edges of what it asks for, some for none.
type shooter struct {
	*rand.Rand
	y        *yard
	resolved *resolve.Resolved
	flows    *reference.Flows
	shots    []*shot

	edges []netip.Addr // first and last addresses of what the policy names, and those beside them
	ports []uint16     // the same of ports
	rules []*policy.Rule
	hooks []policy.Hook // of rules
	port  uint16        // the next source port that nobody uses
	used  map[netip.Addr]bool
}

func newShooter(r *rand.Rand, y *yard, resolved *resolve.Resolved) *shooter {
	g := &shooter{Rand: r, y: y, resolved: resolved, flows: y.follow(resolved, nil), port: 10000, used: map[netip.Addr]bool{}}
	p := resolved.Policy
	for _, section := range []*policy.Section{p.Input, p.Output, p.Forward} {
		if section == nil {
			continue
		}
		for _, rule := range section.Rules {
			g.rules, g.hooks = append(g.rules, rule), append(g.hooks, section.Hook)
			g.services(rule.Services)
			for _, w := range []*policy.Who{rule.From, rule.To} {
				g.who(w)
			}
		}
	}
	for i := range p.Ban {
		g.who(&p.Ban[i])
	}
	for i := range p.NeverBan {
		g.who(&p.NeverBan[i])
	}
	for _, b := range p.Tracking.Bypass {
		g.services(b.Services)
	}
	for _, n := range p.NAT {
		g.who(n.From)
		if n.Service != nil {
			g.services([]policy.ServiceRef{*n.Service})
		}
		for _, r := range append(slices.Clone(n.On), ranges(n.Outside, n.Inside)...) {
			g.edge(r.Range)
		}
		if n.Target != nil && n.Target.Address.IsValid() {
			g.edge(n.Target.Address)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(resolved.Zones)) { // in one order, so that a seed repeats a run
		g.set(resolved.Zones[name].Networks)
	}
	for _, name := range slices.Sorted(maps.Keys(resolved.Sets)) {
		g.set(resolved.Sets[name].Addresses)
	}
	return g
}

func (g *shooter) services(refs []policy.ServiceRef) {
	for _, ref := range refs {
		for _, m := range ref.Matches {
			for _, p := range m.Ports {
				g.ports = append(g.ports, p.From, p.To)
				if p.From > 1 {
					g.ports = append(g.ports, p.From-1)
				}
				if p.To < 65535 {
					g.ports = append(g.ports, p.To+1)
				}
			}
		}
	}
}

func (g *shooter) who(w *policy.Who) {
	if w == nil {
		return
	}
	for _, item := range w.Items {
		if item.Name == "" {
			g.edge(item.Literal)
		}
	}
}

func one[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (g *shooter) chance(n int) bool { return g.IntN(n) == 0 }

// until asks for an address until one fits.
func until(next func() netip.Addr, fits func(netip.Addr) bool) (netip.Addr, bool) {
	for range 50 {
		if a := next(); fits(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// ends chooses where a packet comes from and goes to; not ok where nothing that
// the kernel would route was found.
func (g *shooter) ends(way packet.Way, rule *policy.Rule) (s shot, ok bool) {
	var from, to *policy.Who
	if rule != nil {
		from, to = rule.From, rule.To
	}
	p := &s.packet
	s.way, s.side = way, fromHost
	foreign := func(a netip.Addr) bool { return travels(a) && !g.y.local(a) && !g.special(a) }
	if way == packet.Out {
		p.Destination, ok = until(func() netip.Addr { return g.of(to) }, foreign)
		if !ok {
			return s, false
		}
		p.Source, p.Owner = g.own(p.Destination.Is6()), one[int64](g.Rand, 0, 0, 25, 1000, 7)
		return s, true
	}
	p.Owner = -1
	p.Source, ok = until(func() netip.Addr { return g.of(from) }, foreign)
	if !ok {
		return s, false
	}
	// Most come by the side that they live on.
	if s.side = g.y.route(p.Source); g.chance(8) {
		s.side = g.IntN(len(yardDevices))
	}
	p.In = deviceName(s.side)
	v6 := p.Source.Is6()
	if way == packet.In {
		p.Destination = g.own(v6)
		if rule != nil && to != nil && g.chance(2) {
			if a := g.of(to); g.y.local(a) && a.Is6() == v6 && !a.IsLoopback() {
				p.Destination = a
			}
		}
		return s, true
	}
	p.Destination, ok = until(func() netip.Addr { return g.of(to) }, func(a netip.Addr) bool { return foreign(a) && a.Is6() == v6 })
	return s, ok
}

// shoot makes one packet that belongs to no conversation, for a rule or for none.
func (g *shooter) shoot() {
	var rule *policy.Rule
	hook := one(g.Rand, policy.Input, policy.Forward, policy.Output)
	if len(g.rules) > 0 && !g.chance(4) {
		i := g.IntN(len(g.rules))
		rule, hook = g.rules[i], g.hooks[i]
	}
	way := map[policy.Hook]packet.Way{policy.Input: packet.In, policy.Forward: packet.Through, policy.Output: packet.Out}[hook]
	s, ok := g.ends(way, rule)
	if !ok {
		return
	}
	g.transport(&s, rule)
	g.answerOf(&s)
	g.lead(&s)
	g.add(&s)
}

// lead leads a packet, at times, to what the policy rewrites or does not track.
func (g *shooter) lead(s *shot) {
	p := &s.packet
	lines := g.resolved.Policy
	v6 := p.Source.Is6()
	if n := len(lines.Tracking.Bypass); n > 0 && g.chance(4) && p.HasPorts() {
		services := lines.Tracking.Bypass[g.IntN(n)].Services
		matches := services[g.IntN(len(services))].Matches
		m := matches[g.IntN(len(matches))]
		if len(m.Ports) == 0 || m.Protocol != p.Protocol {
			return
		}
		port := one(g.Rand, m.Ports[0].From, m.Ports[0].To, m.Ports[0].To+1)
		if s.way == packet.Out {
			p.SourcePort, p.Port = port, g.freshPort()
		} else {
			p.Port = port
		}
		return
	}
	travels := !p.Source.IsLinkLocalUnicast() && p.HopLimit != 1
	if n := len(lines.NAT); n > 0 && g.chance(2) && travels {
		line := lines.NAT[g.IntN(n)]
		switch {
		case line.Kind == policy.Redirect:
			matches := line.Service.Matches
			m := matches[g.IntN(len(matches))]
			if !p.HasPorts() || len(m.Ports) == 0 || m.Protocol != p.Protocol {
				return
			}
			p.Port = one(g.Rand, m.Ports[0].From, m.Ports[0].To, m.Ports[0].From, m.Ports[0].To+1)
			if len(line.On) > 0 && line.On[0].Range.From.Is6() == v6 {
				p.Destination = line.On[0].Range.From
			} else if s.way == packet.Through || s.way == packet.Out && g.chance(2) {
				p.Destination = g.own(v6)
			}
		case line.Kind == policy.Map && line.Outside.Range.From.Is6() == v6:
			end := one(g.Rand, line.Outside.Range.From, line.Outside.Range.To, line.Inside.Range.From.Next(), line.Inside.Range.To)
			if s.way != packet.Out && g.chance(3) && line.Inside.Range.From.Next() != g.own(v6) {
				p.Source = line.Inside.Range.To
				return
			}
			p.Destination = end
		default:
			return
		}
		switch own := g.y.local(p.Destination); {
		case s.way == packet.Out:
		case own:
			s.way = packet.In
		default:
			s.way = packet.Through
		}
	}
}

// answerOf turns a packet, at times, into what a service sends back.
func (g *shooter) answerOf(s *shot) {
	p := &s.packet
	if !p.HasPorts() || !g.chance(12) {
		return
	}
	p.SourcePort, p.Port = p.Port, p.SourcePort
	if p.Protocol == packet.TCP {
		p.Flags = one[uint8](g.Rand, packet.SYN|packet.ACK, packet.ACK, packet.SYN, packet.ACK|packet.FIN)
	}
}

// follow asks the reference about shots, and gives what it then knows of flows.
func (y *yard) follow(resolved *resolve.Resolved, shots []*shot) *reference.Flows {
	flows := reference.NewFlows(resolved)
	flows.Quiet, flows.Route = true, y.deviceTo
	for _, s := range shots {
		s.want = flows.Packet(s.packet, s.way)
	}
	return flows
}

// add builds a shot and asks the reference about it; false where it is none that a
// kernel would route.
func (g *shooter) add(s *shot) bool {
	if p := &s.packet; (!p.HasPorts() || p.Protocol == dccp || p.Protocol == udpLite) && p.Protocol != packet.ICMP && p.Protocol != packet.ICMPv6 {
		// Without ports two flows of rewritten ends cannot be told apart, and the
		// kernel drops the second.
		for _, a := range []netip.Addr{p.Source, p.Destination} {
			if g.used[a] {
				return false
			}
			g.used[a] = !g.y.local(a)
		}
	}
	if s.side == fromHost {
		s.packet.In = ""
	} else {
		s.packet.In = deviceName(s.side)
	}
	for _, d := range yardDevices {
		for _, route := range d.routes { // the facts know no routes
			if s.way != packet.In && netip.MustParsePrefix(route).Contains(s.packet.Destination) {
				s.packet.Out = d.name
			}
		}
	}
	if s.packet.HopLimit == 0 {
		s.packet.HopLimit = hops
	}
	s.id = uint32(len(g.shots) + 1)
	s.padded = s.packet.Source.Is6() && s.pieces == 0 && s.packet.Quoted == nil && g.chance(25)
	if s.packet.Protocol == packet.TCP {
		s.packet.Segment = s.segment()
	}
	s.build()
	if s.want = g.flows.Packet(s.packet, s.way); s.want.Crowded || g.special(s.want.Packet.Destination) {
		g.flows = g.y.follow(g.resolved, g.shots) // which were not told of it
		return false
	}
	g.shots = append(g.shots, s)
	return true
}

// freshPort is a source port that nothing has used.
func (g *shooter) freshPort() uint16 {
	if g.port++; g.port > 64000 {
		g.port = 10000
	}
	return g.port
}

func (g *shooter) transport(s *shot, rule *policy.Rule) {
	p := &s.packet
	v6 := p.Source.Is6()
	g.protocol(p, rule)
	switch p.Protocol {
	case packet.ICMP, packet.ICMPv6:
		g.icmp(s)
		return
	case packet.TCP:
		p.SourcePort = g.freshPort()
		s.seq, s.ack, s.window = g.Uint32(), g.Uint32(), g.window()
		if p.Flags = packet.SYN; g.chance(4) {
			p.Flags = one[uint8](g.Rand, packet.ACK, packet.SYN|packet.ACK, packet.FIN|packet.ACK, packet.RST, packet.RST|packet.ACK, packet.PSH|packet.ACK, 0,
				packet.FIN|packet.PSH|packet.URG, packet.SYN|packet.FIN, packet.SYN|packet.RST, packet.FIN, packet.SYN|packet.PSH, uint8(g.IntN(64)))
		}
		if p.Flags&packet.SYN != 0 {
			s.options = g.offer()
		}
	case packet.SCTP:
		p.SourcePort = g.freshPort()
		s.body = []byte{1, 0, 0, 20, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9} // INIT
	case packet.UDP:
		p.SourcePort = g.freshPort()
		s.body = []byte("datagram")
		if p.Protocol == packet.UDP && s.side != fromHost && g.chance(6) { // to a client of DHCP
			if v6 {
				p.SourcePort, p.Port = one[uint16](g.Rand, 547, 546, 548), one[uint16](g.Rand, 546, 547, 545)
				if s.way == packet.In && g.chance(2) {
					p.Source = netip.MustParseAddr("fe80::5")
				}
			} else {
				p.SourcePort, p.Port = one[uint16](g.Rand, 67, 66, 68), one[uint16](g.Rand, 68, 67, 69)
			}
		}
	case udpLite:
		p.SourcePort = g.freshPort()
		s.body = []byte("datagram")
	case dccp:
		p.SourcePort = g.freshPort()
	default:
		p.Port = 0
		s.body = []byte("of some protocol")
	}
	if s.side != fromHost && !slices.Contains([]uint8{packet.TCP, packet.SCTP, udpLite}, p.Protocol) && g.chance(20) {
		s.body = append(s.body, make([]byte, 200+g.IntN(200))...)
		s.pieces = 2 + g.IntN(2)
	}
}

// window is what an end offers.
func (g *shooter) window() uint16 {
	return one[uint16](g.Rand, tcpWindow, tcpWindow, tcpWindow, 29_200, 1000, 1, 0)
}

// offer is what an end says of itself in a SYN.
func (g *shooter) offer() *packet.TCPOptions {
	if g.chance(3) {
		return nil
	}
	return &packet.TCPOptions{Scaled: g.chance(2), Scale: one[uint8](g.Rand, 0, 1, 2, 7, 14, 15), SACKPermitted: g.chance(2)}
}

// protocol gives the packet what the rule asks for, or near it.
func (g *shooter) protocol(p *packet.Packet, rule *policy.Rule) {
	icmp := uint8(packet.ICMP)
	if p.Source.Is6() {
		icmp = packet.ICMPv6
	}
	p.Port = one(g.Rand, append(g.ports, 22, 80, 1, 65535, 1024)...)
	p.Protocol = one[uint8](g.Rand, 6, 6, 6, 6, 17, 17, 17, icmp, icmp, 112, 132, 50, 89, 103, gre, dccp, udpLite, authentication)
	if rule == nil || len(rule.Services) == 0 || g.chance(6) {
		return
	}
	matches := rule.Services[g.IntN(len(rule.Services))].Matches
	m := matches[g.IntN(len(matches))]
	switch {
	case m.Any:
	case m.Protocol == packet.ICMP && !p.Source.Is4():
		p.Protocol = packet.ICMPv6
	case m.Protocol == packet.ICMPv6 && p.Source.Is4(), m.Protocol == packet.ICMP && p.Source.Is6():
	case slices.Contains([]uint8{0, 43, 44, 59, 60}, m.Protocol): // headers of IPv6
	default:
		p.Protocol = m.Protocol
	}
	if m.ICMP != nil {
		kind := m.ICMP.V4
		if p.Source.Is6() {
			kind = m.ICMP.V6
		}
		if kind >= 0 {
			p.ICMPType = uint8(kind)
			return
		}
	}
	if len(m.Ports) > 0 {
		r := m.Ports[g.IntN(len(m.Ports))]
		p.Port = one(g.Rand, r.From, r.To, r.From, r.To, r.From-1, r.To+1, r.From+uint16(g.IntN(int(r.To-r.From)+1)))
		if p.Port == 0 {
			p.Port = r.From
		}
	}
}

var (
	kinds4 = []uint8{0, 3, 4, 5, 8, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 30}
	kinds6 = []uint8{1, 2, 3, 4, 5, 100, 127, 128, 128, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 148, 149, 150}
)

func (g *shooter) icmp(s *shot) {
	p := &s.packet
	p.Port = 0
	kinds := kinds4
	if p.Protocol == packet.ICMPv6 {
		kinds = kinds6
	}
	if p.ICMPType == 0 || g.chance(3) {
		p.ICMPType = kinds[g.IntN(len(kinds))]
	}
	if p.Protocol == packet.ICMPv6 && p.ICMPType >= 130 {
		p.HopLimit = one[uint8](g.Rand, 255, 255, 254, 64, 1)
		if s.way != packet.In && p.HopLimit == 1 {
			p.HopLimit = 2
		}
		if s.way == packet.In && g.chance(2) {
			p.Source = netip.MustParseAddr(one(g.Rand, "fe80::5", "fe80::ffff", "febf::1", "2001:db8:99::9"))
		}
	}
	s.body = make([]byte, 20)
	switch {
	case asks(*p) || repliesTo(*p):
		p.ICMPID = g.freshPort()
		binary.BigEndian.PutUint16(s.body, p.ICMPID)
	case isError(*p):
		// about a packet of nobody
		quoted := packet.Packet{Source: p.Destination, Destination: p.Source, Protocol: packet.TCP, SourcePort: 4, Port: 5, Flags: packet.SYN, HopLimit: 60}
		g.quote(s, quoted)
	}
	if s.side != fromHost && g.chance(20) && len(s.body) >= 20 && p.Quoted == nil {
		s.body = append(s.body, make([]byte, 300)...)
		s.pieces = 2
	}
}

// isError says whether a message carries a packet.
func isError(p packet.Packet) bool {
	return p.Protocol == packet.ICMP && slices.Contains([]uint8{3, 4, 5, 11, 12}, p.ICMPType) || p.Protocol == packet.ICMPv6 && p.ICMPType < 128
}

// quote puts a packet into an error.
func (g *shooter) quote(s *shot, about packet.Packet) {
	s.packet.Quoted = &about
	s.body = append(make([]byte, 4), wireBytes(about, 0, &packet.Segment{Seq: 1, Ack: 1, Window: tcpWindow}, binary.BigEndian.AppendUint16(nil, about.ICMPID))...)
	s.body = append(s.body, make([]byte, 16)...)
}
