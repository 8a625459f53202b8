package reach

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/bdd"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// The packets that there are: what every universe takes for granted of them, and
// what its options leave out.

// all is every packet of a way.
func (u *Universe) all(way Way) Region {
	if r, known := u.domains[way]; known {
		return r
	}
	s := u.space
	out := bdd.Every
	for _, d := range slices.Backward(u.dimensions) {
		out = s.And(out, d.valid(s))
	}
	for _, f := range []program.Field{program.State, program.Direction} {
		if d := u.by[f]; d != nil {
			out = s.And(out, u.named(f, lists[f]...))
		}
	}
	same := func(a, b program.Field) {
		x, y := u.sixth(a), u.sixth(b)
		out = s.And(out, s.Or(s.And(x, y), s.Minus(s.Not(x), y)))
	}
	same(program.Source, program.Destination)
	for _, f := range []program.Field{program.OriginalSource, program.OriginalDestination} {
		if u.by[f] != nil {
			same(program.Source, f)
		}
	}
	six := u.sixth(program.Source)
	out = s.Minus(out, s.And(u.protocol(packet.ICMP), six))
	out = s.Minus(out, s.Minus(u.protocol(packet.ICMPv6), six))
	out = s.And(s.And(out, u.kinds(way)), u.untouched())
	if u.by[program.Direction] != nil {
		out = s.Minus(out, s.And(u.begins(), u.named(program.Direction, "reply")))
	}
	if d := u.by[statusField("confirmed")]; d != nil {
		out = s.Minus(out, s.Minus(u.named(program.State, "established"), u.flag(d.field)))
	}
	out = s.Minus(s.And(out, u.oneDevice()), u.settled(way))
	u.domains[way] = out
	return out
}

// begins is the first packets of flows, as [packet.Packet.Begins] has it.
func (u *Universe) begins() Region {
	s := u.space
	expected := s.Minus(u.named(program.State, "related"), s.Or(u.protocol(packet.ICMP), u.protocol(packet.ICMPv6)))
	return s.Or(u.named(program.State, "new"), expected)
}

// oneDevice says of interfaces that the host decides on that loopback is none of them,
// nor what is known to be apart, and that one interface is the same when packets come in by it and go out.
func (u *Universe) oneDevice() Region {
	s := u.space
	out := bdd.Every
	if u.now {
		out = u.Now(out)
	}
	in, outBy := u.by[program.InInterface], u.by[program.OutInterface]
	for _, d := range u.dimensions {
		f, name, followed := cutFollowed(d.field)
		if !followed {
			continue
		}
		yes := u.flag(d.field)
		if u.by[f] != nil {
			out = s.Minus(out, s.And(yes, u.named(f, append(slices.Clone(u.apart), "lo")...)))
		}
		other := u.by[followedField(program.OutInterface, name)]
		if f != program.InInterface || in == nil || outBy == nil || other == nil {
			continue
		}
		differ := s.Or(s.Minus(yes, u.flag(other.field)), s.Minus(u.flag(other.field), yes))
		for _, n := range in.names {
			if n != "" && !strings.HasSuffix(n, "*") && slices.Contains(outBy.names, n) {
				out = s.Minus(out, s.And(differ, s.And(u.named(program.InInterface, n), u.named(program.OutInterface, n))))
			}
		}
	}
	return out
}

// originals are the fields that say what a flow was before it was rewritten, and
// the packet's own.
var originals = []struct{ original, own program.Field }{
	{program.OriginalSource, program.Source},
	{program.OriginalDestination, program.Destination},
	{program.OriginalPort, program.Port},
}

// mostTied bounds the classes of a field that is tied to another one.
const mostTied = 4096

// untouched says of the first packet of a flow that nobody has rewritten that what
// it was is what it is.
func (u *Universe) untouched() Region {
	s := u.space
	out := bdd.Every
	for _, f := range originals {
		d, own := u.by[f.original], u.by[f.own]
		if d == nil || d.classes > mostTied {
			continue
		}
		same := make([]Region, d.classes)
		for class := range same {
			in := make([]bool, own.classes)
			for c := range in {
				if d.kind == addresses {
					in[c] = d.blocks.classOf(own.blocks.example(c)) == class
				} else {
					in[c] = d.class(own.starts[c]) == class
				}
			}
			same[class] = s.And(d.region(s, one(class, d.classes)), own.region(s, in))
		}
		first := s.Minus(u.begins(), u.rewritten())
		out = s.Minus(out, s.Minus(first, (&view{u: u}).either(same)))
	}
	return out
}

// kinds is what the addresses say of what the routing table says of them.
func (u *Universe) kinds(way Way) Region {
	s := u.space
	out := bdd.Every
	implies := func(a, b Region) { out = s.Minus(out, s.Minus(a, b)) }
	for _, k := range kindFields {
		if u.by[k.kind] == nil {
			continue
		}
		many := u.inAddresses(k.address, addrset.FromPrefixes(multicast...))
		implies(many, u.named(k.kind, "multicast"))
		implies(u.named(k.kind, "multicast"), many)
		all := u.inAddresses(k.address, addrset.FromPrefixes(broadcast...))
		implies(all, u.named(k.kind, "broadcast"))
		home := u.inAddresses(k.address, addrset.FromPrefixes(loopback...))
		if k.kind == program.DestinationHere {
			continue
		}
		implies(home, u.named(k.kind, "local"))
		if !u.own.IsEmpty() {
			own := s.Or(home, u.inAddresses(k.address, u.own))
			implies(own, u.named(k.kind, "local"))
			implies(u.named(k.kind, "local"), own)
			implies(u.named(k.kind, "broadcast"), all)
			implies(bdd.Every, u.named(k.kind, lists[k.kind]...))
		}
	}
	for _, d := range u.dimensions {
		if _, own := cutOwn(d.field); own {
			implies(u.flag(d.field), u.named(program.DestinationType, "local"))
			none := slices.Clone(linkLocal)
			if !u.ownsLoopback {
				none = append(none, loopback...)
			}
			implies(u.flag(d.field), s.Not(u.inAddresses(program.Destination, addrset.FromPrefixes(none...))))
		}
	}
	if u.by[program.DestinationHere] != nil && u.by[program.DestinationType] != nil {
		implies(u.named(program.DestinationHere, "local"), u.named(program.DestinationType, "local"))
		implies(u.named(program.DestinationType, "unicast"), u.named(program.DestinationHere, "unicast"))
	}
	if u.by[program.DestinationHere] != nil && way != Out && len(u.here) > 0 {
		out = s.And(out, u.hereOnly())
	}
	for _, k := range kindFields[:2] { // by lo go and come the host's own packets
		if u.by[k.kind] == nil {
			continue
		}
		for _, device := range []program.Field{program.InInterface, program.OutInterface} {
			if d := u.by[device]; d != nil && slices.Contains(d.names, "lo") && (device == program.OutInterface) == (way == Out) {
				implies(u.named(device, "lo"), u.named(k.kind, "local", "multicast"))
			}
		}
	}
	if d := u.by[program.Owner]; d != nil && way != Out {
		out = s.And(out, d.region(s, one(d.class(noOwner), d.classes)))
	}
	return out
}

// hereOnly says of what is local to an interface that it is an address of that one.
func (u *Universe) hereOnly() Region {
	s := u.space
	local := u.named(program.DestinationHere, "local")
	rest, out := bdd.Every, bdd.Every
	for name, set := range u.here {
		by := u.named(program.InInterface, name)
		rest = s.Minus(rest, by)
		mine := u.inAddresses(program.Destination, set)
		out = s.Minus(out, s.And(by, s.Minus(local, mine)))
		out = s.Minus(out, s.And(by, s.Minus(mine, local)))
	}
	return s.Minus(out, s.And(rest, local))
}

var kindFields = []struct{ kind, address program.Field }{
	{program.SourceType, program.Source},
	{program.DestinationType, program.Destination},
	{program.DestinationHere, program.Destination},
}

// kindOf is what routing says of an address.
func kindOf(f program.Field) program.Field {
	if f == program.Source {
		return program.SourceType
	}
	return program.DestinationType
}

// scanBanned notes the sets that a program's bans ask for both ends of a packet,
// whichever of them the program asks.
func (u *Universe) scanBanned(p *program.Program) {
	for _, s := range bannedSets(p) {
		if s.Life != program.Dynamic && s.Life != program.Followed {
			u.boundary(program.Source, addressesOf(s))
			u.boundary(program.Destination, addressesOf(s))
		}
	}
}

// noteBanned finds the static sets that a program's bans ask.
func (u *Universe) noteBanned(p *program.Program) {
	for _, s := range bannedSets(p) {
		if s.Life == program.Dynamic || s.Life == program.Followed {
			for _, end := range []struct {
				field  program.Field
				banned *Region
			}{{program.Source, &u.bannedFrom}, {program.Destination, &u.bannedTo}} {
				key := []program.Field{end.field}
				for _, f := range []program.Field{tableField(s, key), tableBehind(s, key)} {
					if u.by[f] != nil {
						*end.banned = u.Or(*end.banned, u.flag(f))
					}
				}
			}
			continue
		}
		set := addressesOf(s)
		u.banned = u.Or(u.banned, u.inAddresses(program.Source, set))
		u.bannedFrom = u.Or(u.bannedFrom, u.inAddresses(program.Source, set))
		u.bannedTo = u.Or(u.bannedTo, u.inAddresses(program.Destination, set))
	}
	// Flows of whom is let in over bans live on.
	over := addrset.Of(p.OverBans...)
	u.banned = u.Or(u.Minus(u.banned, u.inAddresses(program.Source, over)), u.Minus(u.bannedTo, u.inAddresses(program.Destination, over)))
}

// settled is what Options.Settled leaves out.
func (u *Universe) settled(way Way) Region {
	s := u.space
	out := s.And(u.banned, u.named(program.State, "established"))
	switch {
	case u.by[program.DestinationType] == nil:
	case way == In:
		out = s.Or(out, s.Minus(u.bannedTo, u.named(program.DestinationType, "local")))
	default:
		out = s.Or(out, s.And(u.bannedTo, u.named(program.DestinationType, "multicast")))
	}
	if u.by[program.InInterface] != nil && way == Through {
		out = s.Or(out, s.And(u.bannedFrom, u.named(program.InInterface, "lo")))
	}
	if u.by[program.OutInterface] != nil && way == Out {
		out = s.Or(out, s.And(u.bannedTo, u.named(program.OutInterface, "lo")))
	}
	if d := u.by[program.InInterface]; d != nil && way == In && u.untracksLoopback {
		home := addrset.FromPrefixes(loopback...)
		lo := s.And(u.named(program.InInterface, "lo"), s.And(u.inAddresses(program.Source, home), u.inAddresses(program.Destination, home)))
		out = s.Or(out, s.Minus(lo, u.named(program.State, "untracked")))
	}
	for _, d := range u.dimensions {
		if bit, is := program.LabelBit(strings.TrimPrefix(string(d.field), string(statusField("")))); is && !u.labels[bit] {
			out = s.Or(out, u.flag(d.field))
		}
	}
	return out
}

// untracksLoopback says whether a program keeps anything out of tracking that goes
// out by lo.
func untracksLoopback(p *program.Program) bool {
	c := p.Base(program.Output, program.Raw)
	return c != nil && slices.ContainsFunc(c.Rules, func(r program.Rule) bool {
		return r.Untracks() &&
			slices.ContainsFunc(r.Match, func(c program.Condition) bool {
				return c.Field == program.OutInterface && slices.Contains(c.Names, "lo") && !c.Not
			})
	})
}
