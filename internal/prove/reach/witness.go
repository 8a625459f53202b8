package reach

import (
	"net/netip"
	"strings"
	"time"

	"sluice/internal/base/bdd"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// Witness gives one packet of a region of a way that is not empty: of what fits,
// what is met most often.
func (u *Universe) Witness(way Way, r Region) packet.Packet {
	r = u.And(r, u.all(way))
	for _, usual := range u.usual(way) {
		if both := u.And(r, usual); both != bdd.None {
			r = both
		}
	}
	bits := u.space.Witness(r)
	class := func(f program.Field) (*dimension, int) {
		d := u.by[f]
		if d == nil {
			return nil, 0
		}
		code := 0
		for i := range d.bits {
			code <<= 1
			if bits[d.first+i] {
				code |= 1
			}
		}
		return d, code
	}
	return u.build(way, class)
}

// usual are regions that a witness is sought in, one after the other.
func (u *Universe) usual(way Way) []Region {
	numbers := func(f program.Field, from, to uint64) Region {
		d := u.by[f]
		if d == nil {
			return bdd.Every
		}
		return d.region(u.space, one(d.class(to), d.classes))
	}
	names := func(f program.Field, list ...string) Region {
		if u.by[f] == nil {
			return bdd.Every
		}
		return u.named(f, list...)
	}
	no := func(f program.Field) Region {
		if d := u.by[f]; d != nil {
			return u.space.Not(u.flag(f))
		}
		return bdd.Every
	}
	out := []Region{names(program.State, "new"), u.Unlimited(bdd.Every), no(statusField("dnat")), no(statusField("snat"))}
	for _, p := range []uint64{packet.TCP, packet.UDP} {
		out = append(out, u.protocol(p))
	}
	out = append(out, numbers(program.Fragment, 0, 0), numbers(program.Owner, noOwner, noOwner), numbers(program.SourcePort, 40000, 40000),
		numbers(program.TCPFlags, packet.SYN, packet.SYN), names(program.Direction, "original"), names(program.SourceType, "unicast"))
	destination := "unicast"
	if way == In {
		destination = "local"
	}
	out = append(out, names(program.DestinationType, destination), names(program.DestinationHere, destination))
	if !u.own.IsEmpty() && way == Out {
		out = append(out, names(program.SourceType, "local"))
	}
	for _, f := range []program.Field{program.InInterface, program.OutInterface} {
		if u.by[f] != nil {
			out = append(out, u.space.Not(u.named(f, "lo")))
		}
	}
	for _, f := range []program.Field{program.Source, program.Destination} {
		out = append(out, u.space.Not(u.sixth(f)))
	}
	return append(out, u.followedNow()...)
}

// Now is the packets of a region that there are while the host decides on interfaces and
// addresses as it did when the programs were made.
func (u *Universe) Now(r Region) Region {
	for _, now := range u.followedNow() {
		r = u.And(r, now)
	}
	return r
}

// followedNow is, for each question for what the host decides on, the packets of which
// the answer is that of the moment at which the programs were made.
func (u *Universe) followedNow() []Region {
	var out []Region
	for _, d := range u.dimensions {
		yes, now := bdd.None, bdd.None
		if zone, own := cutOwn(d.field); own {
			yes, now = u.flag(d.field), u.inAddresses(program.Destination, u.owned[zone])
		}
		if f, _, followed := cutFollowed(d.field); followed && u.by[f] != nil {
			yes = u.flag(d.field)
			for name := range u.followed {
				now = u.Or(now, u.named(f, name))
			}
		}
		if yes == bdd.None {
			continue
		}
		out = append(out, u.Or(u.And(yes, now), u.Minus(u.space.Not(yes), now)))
	}
	return out
}

// assumed is what a packet takes for granted of its interface, where the host has it
// otherwise.
func (u *Universe) assumed(f program.Field, name string, yes func(program.Field) bool) packet.Answer {
	field := followedField(f, program.DefaultRoute)
	if u.by[field] == nil || yes(field) == u.followed[name] {
		return packet.Unknown
	}
	return packet.Is(yes(field))
}

func (u *Universe) build(way Way, class func(program.Field) (*dimension, int)) packet.Packet {
	p := packet.Packet{Owner: -1}
	number := func(f program.Field, usual uint64) uint64 {
		d, c := class(f)
		switch {
		case d == nil:
			return usual
		case d.starts[c] <= usual && usual <= d.end(c):
			return usual
		case f == program.Port && d.starts[c] == 0 && d.end(c) > 0:
			return 1 // 0 is no port that anybody uses
		}
		return d.starts[c]
	}
	name := func(f program.Field) string {
		if d, c := class(f); d != nil {
			return d.exampleName(c)
		}
		return ""
	}
	address := func(f program.Field) netip.Addr {
		d, c := class(f)
		if d == nil {
			return netip.Addr{}
		}
		return d.blocks.example(c)
	}
	yes := func(f program.Field) bool { d, c := class(f); return d != nil && c == 1 }

	if way != Out {
		p.In = name(program.InInterface)
		p.InRoute = u.assumed(program.InInterface, p.In, yes)
	}
	if way != In {
		p.Out = name(program.OutInterface)
		p.OutRoute = u.assumed(program.OutInterface, p.Out, yes)
	}
	p.Source, p.Destination = address(program.Source), address(program.Destination)
	for _, d := range u.dimensions {
		if zone, own := cutOwn(d.field); own && yes(d.field) != u.owned[zone].Contains(p.Destination) {
			p.Own = p.Own.With(zone, yes(d.field))
		}
		if set, key, filled := cutFilled(d.field); filled {
			at := ""
			if key != "" {
				at = address(key).String()
			}
			p.Filled = p.Filled.With(set+"/"+at, yes(d.field))
		}
	}
	p.Protocol = uint8(number(program.Protocol, packet.TCP)) //nolint:gosec // bounded by the dimension
	if p.HasPorts() {
		p.SourcePort = uint16(number(program.SourcePort, 40000)) //nolint:gosec // as above
		p.Port = uint16(number(program.Port, 80))                //nolint:gosec // as above
	}
	switch p.Protocol {
	case packet.TCP:
		p.Flags = uint8(number(program.TCPFlags, packet.SYN)) //nolint:gosec // as above
	case packet.ICMP:
		p.ICMPType, p.ICMPCode = uint8(number(program.ICMPType, 8)), uint8(number(program.ICMPCode, 0)) //nolint:gosec // as above
	case packet.ICMPv6:
		p.ICMPType, p.ICMPCode = uint8(number(program.ICMPv6Type, 128)), uint8(number(program.ICMPv6Code, 0)) //nolint:gosec // as above
	}
	p.State = packet.State(name(program.State))
	p.Reply = name(program.Direction) == "reply"
	p.DNAT, p.SNAT = yes(statusField("dnat")), yes(statusField("snat"))
	if p.DNAT || p.SNAT {
		p.Original = p.Tuple()
		if a := address(program.OriginalSource); a.IsValid() {
			p.Original.Source = a
		}
		if a := address(program.OriginalDestination); a.IsValid() {
			p.Original.Destination = a
		}
		p.Original.Port = uint16(number(program.OriginalPort, uint64(p.Port))) //nolint:gosec // as above
	}
	p.Fragment = number(program.Fragment, 0) == 1
	p.Length = int(number(program.Length, 0))       //nolint:gosec // as above
	p.DSCP = uint8(number(program.DSCP, 0))         //nolint:gosec // as above
	p.HopLimit = uint8(number(program.HopLimit, 0)) //nolint:gosec // as above
	p.Mark = uint32(number(program.Mark, 0))        //nolint:gosec // as above
	if u.by[program.Time] != nil {
		p.Time = int64(max(number(program.Time, uint64(time.Now().Unix())), 1)) //nolint:gosec // as above; 0 is now
	}
	if d, c := class(program.Owner); d != nil && way == Out && d.starts[c] != noOwner {
		p.Owner = int64(d.starts[c]) //nolint:gosec // as above
	}
	p.SourceLocal = u.local(p.Source, name(program.SourceType), way == Out)
	p.DestinationLocal = u.local(p.Destination, name(program.DestinationType), way == In)
	return p
}

// local says whether an address is the host's own, by what is known of it.
func (u *Universe) local(a netip.Addr, kind string, usual bool) packet.Answer {
	switch {
	case kind == "local":
		return packet.Yes
	case kind != "":
		return packet.No
	case !u.own.IsEmpty():
		return packet.Is(u.own.Contains(a))
	}
	return packet.Is(usual)
}

// Holds says whether a packet of a way is in a region. What the packet leaves
// unknown is taken as no, and limits let it through.
func (u *Universe) Holds(r Region, p packet.Packet) bool {
	code := map[*dimension]int{}
	for _, d := range u.dimensions {
		code[d] = u.codeOf(d, &p)
	}
	level := func(l int) bool {
		for _, d := range u.dimensions {
			if l < d.first+d.bits {
				return code[d]>>(d.bits-1-(l-d.first))&1 == 1
			}
		}
		return false
	}
	return u.space.Holds(r, level)
}

func (u *Universe) codeOf(d *dimension, p *packet.Packet) int {
	number := func(n uint64) int { return d.class(n) }
	yes := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	original := p.Arrived()
	kind := func(a netip.Addr, local packet.Answer) int {
		if v := kind(a, local); len(v.names) > 0 {
			return d.ofName(v.names[0])
		}
		return d.ofName("unicast")
	}
	switch d.field {
	case program.State:
		return d.ofName(string(p.State))
	case program.Protocol:
		return number(uint64(p.Protocol))
	case program.Port:
		return number(uint64(p.Port))
	case program.SourcePort:
		return number(uint64(p.SourcePort))
	case program.TCPFlags:
		return number(uint64(p.Flags))
	case program.ICMPType, program.ICMPv6Type:
		return number(uint64(p.ICMPType))
	case program.ICMPCode, program.ICMPv6Code:
		return number(uint64(p.ICMPCode))
	case program.InInterface:
		return d.ofName(p.In)
	case program.OutInterface:
		return d.ofName(p.Out)
	case program.Source:
		return d.blocks.classOf(p.Source)
	case program.Destination:
		return d.blocks.classOf(p.Destination)
	case program.OriginalSource:
		return d.blocks.classOf(original.Source)
	case program.OriginalDestination:
		return d.blocks.classOf(original.Destination)
	case program.OriginalPort:
		return number(uint64(original.Port))
	case program.SourceType:
		return kind(p.Source, p.SourceLocal)
	case program.DestinationType:
		return kind(p.Destination, p.DestinationLocal)
	case program.DestinationHere:
		if c := kind(p.Destination, p.DestinationLocal); c != d.ofName("local") || len(u.here) == 0 || u.here[p.In].Contains(p.Destination) {
			return c
		}
		return d.ofName("unicast")
	case program.Direction:
		if p.Reply {
			return d.ofName("reply")
		}
		return d.ofName("original")
	case program.Owner:
		if p.Owner < 0 {
			return number(noOwner)
		}
		return number(uint64(p.Owner))
	case program.Time:
		return number(uint64(max(p.Moment(), 0)))
	case program.Fragment:
		return yes(p.Fragment)
	case program.Length:
		return number(uint64(p.Length)) //nolint:gosec // a length
	case program.DSCP:
		return number(uint64(p.DSCP))
	case program.HopLimit:
		return number(uint64(p.HopLimit))
	case program.Mark:
		return number(uint64(p.Mark))
	case statusField("dnat"):
		return yes(p.DNAT)
	case statusField("snat"):
		return yes(p.SNAT)
	case statusField("confirmed"):
		return yes(p.State == packet.Established || p.State == packet.Related)
	}
	if f, _, followed := cutFollowed(d.field); followed {
		name, assumed := p.In, p.InRoute
		if f == program.OutInterface {
			name, assumed = p.Out, p.OutRoute
		}
		return yes(assumed == packet.Yes || assumed == packet.Unknown && u.followed[name])
	}
	if zone, own := cutOwn(d.field); own {
		assumed := p.Own.In(zone)
		return yes(assumed == packet.Yes || assumed == packet.Unknown && u.owned[zone].Contains(p.Destination))
	}
	if set, key, filled := cutFilled(d.field); filled {
		if key == "" {
			return yes(p.Filled.In(set+"/") == packet.Yes)
		}
		a := p.Source
		if key == program.Destination {
			a = p.Destination
		}
		return yes(p.Filled.Fills(set, a))
	}
	return yes(strings.HasPrefix(string(d.field), "gate:"))
}
