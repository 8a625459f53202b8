package estimate

import (
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// Class is one kind of packet of a mix.
type Class struct {
	Name   string // "established", "banned", …
	Share  float64
	packet packet.Packet
	way    reach.Way
}

// Shares of the packets, in hundredths. What a program has no packets of falls
// away, and the rest is taken for the whole.
const (
	shareIn      = 40 // of established TCP flows, to the host
	shareOut     = 30 // the same, from the host
	shareNew     = 15 // that begin a flow which a rule allows, or that bypass tracking
	shareBanned  = 5
	shareRefused = 10 // that no rule allows
)

const newAllowed = "new, allowed"

// mostRules bounds for how many rules of a program there are packets.
const mostRules = 64

// others are addresses that policies hardly know; a mix takes those that its program knows
// least.
var (
	others4 = addresses("203.0.113.253", "192.0.2.253", "198.18.0.253", "192.88.99.253", "45.13.7.253")
	others6 = addresses("2001:db8:ffff:ffff::fffd", "2001:db8:7::fffd", "2a0f:ffff:ffff::fffd")
	own4    = netip.MustParseAddr("198.51.100.254")
	own6    = netip.MustParseAddr("2001:db8:ffff:fffe::fffe")
)

func addresses(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// leastKnown is the address that is banned least, and then that fewest rules name.
func leastKnown(p *program.Program, of []netip.Addr) netip.Addr {
	known := make([]int, len(of))
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			weight := 1
			if bans(r) {
				weight = 1 << 20
			}
			for k := range r.Match {
				for n, a := range of {
					if names(p, &r.Match[k], a) {
						known[n] += weight
					}
				}
			}
		}
	}
	return of[slices.Index(known, slices.Min(known))]
}

// names says whether a condition is about the sources that an address is among.
func names(p *program.Program, c *program.Condition, a netip.Addr) bool {
	if c.Field != program.Source {
		return false
	}
	if s := p.Set(c.Set); s != nil {
		return s.Addresses.Contains(a)
	}
	return slices.ContainsFunc(c.Addresses, func(r addrset.Range) bool { return r.Contains(a) })
}

// MixOf makes the mix for a program as it was compiled. Where a profile says
// how often rules were hit, packets that begin flows are shared by it, and
// else evenly.
func MixOf(p *program.Program, profile map[string]uint64) []Class {
	var out []Class
	other4, other6 := leastKnown(p, others4), leastKnown(p, others6)
	in := arriving(other4, own4)
	in.State, in.Flags, in.Port = packet.Established, packet.ACK, 22 // ssh is hardly ever out of tracking
	out = append(out, Class{"established, in", shareIn, in, reach.In})
	back := in.Mirror()
	back.Reply, back.In, back.Out = true, "", "eth0"
	out = append(out, Class{"established, out", shareOut, back, reach.Out})
	begins := allowed(p, profile, other4, other6)
	out = append(out, begins...)
	if b, is := banned(p); is {
		out = append(out, Class{"banned", shareBanned, b, reach.In})
	}
	refused := arriving(other4, own4)
	refused.Port = 9
	last := Class{"refused", shareRefused, refused, reach.In}
	if reach.Evaluate(p, refused, reach.In).Verdict == program.Accept {
		// The default allows what no rule is about.
		last.Name = newAllowed
		if len(begins) == 0 {
			last.Share = shareNew
		}
	}
	out = append(out, last)
	total := 0.0
	for _, c := range out {
		total += c.Share
	}
	for i := range out {
		out[i].Share /= total
	}
	return out
}

// arriving is a SYN from the outside.
func arriving(from, to netip.Addr) packet.Packet {
	return packet.Packet{
		In: "eth0", Source: from, Destination: to, Protocol: packet.TCP, SourcePort: 40000, Port: 443, Flags: packet.SYN,
		SourceLocal: packet.No, DestinationLocal: packet.Yes, Length: 60, HopLimit: 64, Owner: -1,
	}
}

// allowed are packets that rules of input allow, one for each.
func allowed(p *program.Program, profile map[string]uint64, other4, other6 netip.Addr) []Class {
	var out []Class
	var weights []float64
	total := 0.0
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			if r.ID == "" || len(r.Match) == 0 || len(out) == mostRules {
				continue
			}
			from, to := other4, own4
			if wantsIPv6(p, r) {
				from, to = other6, own6
			}
			pkt, ok := fitting(p, r, from, to)
			if !ok {
				continue
			}
			weight := 1.0
			if len(profile) > 0 {
				weight = float64(hits(r, profile))
			}
			total += weight
			out = append(out, Class{newAllowed, shareNew, pkt, reach.In})
			weights = append(weights, weight)
		}
	}
	for i := range out {
		if total == 0 {
			out[i].Share /= float64(len(out))
			continue
		}
		out[i].Share *= weights[i] / total
	}
	return out
}

func hits(r *program.Rule, profile map[string]uint64) uint64 {
	if n, has := profile[r.ID]; has {
		return n
	}
	for _, a := range r.Actions {
		if counter := program.EffectOf(a).Counts; counter != "" {
			return profile[counter]
		}
	}
	return 0
}

// fitting is a packet that comes to the host and that the rule accepts.
func fitting(p *program.Program, r *program.Rule, from, to netip.Addr) (packet.Packet, bool) {
	pkt := arriving(from, to)
	for i := range r.Match {
		set(p, &pkt, &r.Match[i])
	}
	if pkt.Protocol != packet.TCP {
		pkt.Flags = 0
	}
	got := reach.Evaluate(p, pkt, reach.In)
	return pkt, got.Verdict == program.Accept
}

func wantsIPv6(p *program.Program, r *program.Rule) bool {
	for _, c := range r.Match {
		switch {
		case c.Not:
		case c.Field == program.Family:
			return c.Numbers[0].From == 6
		case c.Field == program.Protocol:
			return len(c.Numbers) > 0 && c.Numbers[0].From == packet.ICMPv6
		case c.Field == program.Source || c.Field == program.Destination:
			a, ok := firstAddress(p, &c)
			return ok && !a.Is4()
		}
	}
	return false
}

// firstAddress is an address with which a condition holds.
func firstAddress(p *program.Program, c *program.Condition) (netip.Addr, bool) {
	if len(c.Addresses) > 0 {
		return c.Addresses[0].From, true
	}
	s := p.Set(c.Set)
	if s == nil {
		return netip.Addr{}, false
	}
	for r := range s.Addresses.Each() {
		return r.From, true
	}
	for _, e := range s.Elements {
		if slices.IndexFunc(s.Key, func(f program.Field) bool { return f == c.Field || f == program.Source || f == program.Destination }) == 0 {
			return e.Parts[0].Addresses.From, e.Parts[0].Addresses.From.IsValid()
		}
	}
	return netip.Addr{}, false
}

// set gives a packet what a condition asks for.
func set(p *program.Program, pkt *packet.Packet, c *program.Condition) {
	if c.Not {
		return
	}
	first := func() uint64 {
		if len(c.Numbers) == 0 {
			return 0
		}
		return c.Numbers[0].From
	}
	switch c.Field {
	case program.InInterface:
		if len(c.Names) > 0 {
			pkt.In = c.Names[0]
		}
	case program.Protocol:
		pkt.Protocol = uint8(first())
	case program.Port:
		pkt.Port = uint16(first())
	case program.SourcePort:
		pkt.SourcePort = uint16(first())
	case program.ICMPType, program.ICMPv6Type:
		pkt.ICMPType = uint8(first())
	case program.Source:
		if a, ok := firstAddress(p, c); ok {
			pkt.Source = a
		}
	case program.Destination:
		if a, ok := firstAddress(p, c); ok {
			pkt.Destination = a
		}
		if s := p.Set(c.Set); s != nil && len(c.SetKey) == 2 && len(s.Elements) > 0 {
			pkt.Port = uint16(s.Elements[0].Parts[1].Numbers.From)
		}
	}
}

// bans says whether a rule may be a ban's.
func bans(r *program.Rule) bool {
	return r.ID == "" && len(r.Actions) > 0 && r.Actions[len(r.Actions)-1] == program.Action(program.Drop)
}

// banned is a packet from an address that a policy bans; not ok where it bans
// none.
func banned(p *program.Program) (packet.Packet, bool) {
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			if !bans(r) {
				continue
			}
			for k := range r.Match {
				c := &r.Match[k]
				if c.Field != program.Source || c.Set == "" || c.Not {
					continue
				}
				if a, ok := firstAddress(p, c); ok {
					to := own4
					if !a.Is4() {
						to = own6
					}
					return arriving(a, to), true
				}
			}
		}
	}
	return packet.Packet{}, false
}
