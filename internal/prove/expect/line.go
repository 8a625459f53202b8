package expect

import (
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/query"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// algebra is what regions are made with: a universe, or what finds out first
// which questions it will be asked.
type algebra interface {
	Region(reach.Question) reach.Region
	And(a, b reach.Region) reach.Region
	Or(a, b reach.Region) reach.Region
	Minus(a, b reach.Region) reach.Region
}

// asked notes questions and knows no packets.
type asked struct{ questions []reach.Question }

func (a *asked) Region(q reach.Question) (none reach.Region) {
	a.questions = append(a.questions, q)
	return none
}
func (a *asked) And(reach.Region, reach.Region) (none reach.Region)   { return none }
func (a *asked) Or(reach.Region, reach.Region) (none reach.Region)    { return none }
func (a *asked) Minus(reach.Region, reach.Region) (none reach.Region) { return none }

// line is an expectation with what its names and its hook are.
type line struct {
	*policy.Expectation
	*resolve.Resolved
	hook policy.Hook
	by   rewriting
	// elsewhere is what other tools lead on of the line's services.
	elsewhere []host.Published
	// here says that the program asks whether a destination is an address of the
	// incoming interface.
	here bool
}

// ways are those that the line's packets may take in the end: rewriting may lead
// a packet to this host elsewhere, and one to elsewhere to this host. What
// another tool has rewritten has come to its way already.
func (l *line) ways() []packet.Way {
	switch {
	case l.hook == policy.Output:
		return []packet.Way{packet.Out}
	case l.Published && l.On != "": // where they are led
		return []packet.Way{wayOf[l.On]}
	}
	return []packet.Way{packet.In, packet.Through}
}

// arrives is the way of the line's packets before any rewriting.
func (l *line) arrives() packet.Way {
	return wayOf[l.hook]
}

var wayOf = map[policy.Hook]packet.Way{policy.Input: packet.In, policy.Forward: packet.Through, policy.Output: packet.Out}

// port and destination are where the line's packets have what was asked for.
func (l *line) port() program.Field {
	if l.by == byAnother {
		return program.OriginalPort
	}
	return program.Port
}

func (l *line) destination() program.Field {
	if l.by == byAnother {
		return program.OriginalDestination
	}
	return program.Destination
}

// region is the line's packets that take a way in the end, of those that the line
// could be about.
func (l *line) region(u algebra, way packet.Way) (fits, among reach.Region) {
	among = u.And(u.Region(reach.Question{Way: way, States: l.states()}), l.way(u, way))
	among = u.Minus(u.Minus(among, l.strange(u, way)), l.always(u, way))
	return u.And(among, l.words(u, way)), among
}

// states are what connection tracking says of the line's packets.
func (l *line) states() []packet.State {
	if len(l.States) == 0 {
		return []packet.State{packet.New}
	}
	var out []packet.State
	for _, s := range l.States {
		out = append(out, packet.State(s))
	}
	return out
}

// words is the packets that fit what the line says of them.
func (l *line) words(u algebra, way packet.Way) reach.Region {
	all := func(conditions ...program.Condition) reach.Region {
		return u.Region(reach.Question{Way: way, Match: [][]program.Condition{conditions}})
	}
	out := u.And(
		l.who(u, way, l.From, program.Source, program.InInterface),
		l.who(u, way, l.To, l.destination(), program.OutInterface))
	if l.Family != 0 {
		out = u.And(out, all(numbers(program.Family, uint64(l.Family)))) //nolint:gosec // 4 or 6
	}
	if len(l.Services) > 0 {
		out = u.And(out, u.Region(reach.Question{Way: way, Match: query.Alternatives(l.Services, l.port(), nil)}))
	}
	if l.In != nil {
		out = u.And(out, all(names(program.InInterface, l.Zones[l.In.Text].Interfaces...)))
	}
	if l.Out != nil {
		out = u.And(out, all(names(program.OutInterface, l.Zones[l.Out.Text].Interfaces...)))
	}
	if users := l.Expectation.Users; len(users) > 0 {
		ids := make([]uint64, len(users))
		for i, user := range users {
			ids[i] = uint64(l.Resolved.Users[user.Text])
		}
		out = u.And(out, all(numbers(program.Owner, ids...)))
	}
	return out
}

// way is the packets that come on the line's hook before any rewriting.
func (l *line) way(u algebra, way packet.Way) reach.Region {
	is := func(c program.Condition) reach.Region {
		return u.Region(reach.Question{Way: way, Match: [][]program.Condition{{c}}})
	}
	every := u.Region(reach.Question{Way: way})
	if l.hook == policy.Output {
		return u.Minus(every, is(names(program.OutInterface, loopback)))
	}
	every = u.Minus(every, is(names(program.InInterface, loopback)))
	every = u.Minus(every, is(names(program.SourceType, "local")))
	every = u.Minus(every, u.Region(reach.Question{Way: way, To: &itself}))
	foreign := is(names(program.Status, "dnat"))
	if l.by == byAnother {
		return u.And(u.And(every, foreign), l.led(u, way))
	}
	every = u.Minus(every, foreign)
	if l.here && l.Facts.Known {
		every = u.Minus(every, l.misplaced(u, way))
	}
	unicast := is(names(program.DestinationType, "unicast"))
	known := l.Facts.Known && !l.Facts.NonLocalBind
	_, here := own(l.Facts)
	home := u.Region(reach.Question{Way: way, To: &here})
	if l.hook == policy.Forward {
		every = u.And(every, unicast)
		if known {
			every = u.Minus(every, home)
		}
		return every
	}
	every = u.Minus(every, unicast)
	if known {
		every = u.And(every, home)
	}
	return every
}

// destinations is where the line's packets can go, where that is known.
func (l *line) destinations() *addrset.Set {
	if l.by == byAnother || l.hook != policy.Input || !l.Facts.Known || l.Facts.NonLocalBind {
		return nil
	}
	_, here := own(l.Facts)
	return &here
}

// misplaced is what cannot be: an address of one interface taken for that of
// another, or not for its own.
func (l *line) misplaced(u algebra, way packet.Way) (out reach.Region) {
	local := u.Region(reach.Question{Way: way, Match: [][]program.Condition{match(names(program.DestinationHere, "local"))}})
	var here reach.Region
	for _, i := range l.Facts.Interfaces {
		var b addrset.Builder
		for _, p := range i.Addresses {
			b.AddAddr(p.Addr())
		}
		addresses := b.Set()
		here = u.Or(here, u.Region(reach.Question{Way: way, To: &addresses, Match: [][]program.Condition{match(names(program.InInterface, i.Name))}}))
	}
	return u.Or(u.Minus(local, here), u.Minus(here, local))
}

const loopback = "lo"

// TCP flags that connection tracking looks at, and what it takes for new.
const trackedFlags = packet.SYN | packet.ACK | packet.FIN | packet.RST

// ICMP that opens a flow (nf_conntrack_proto_icmp.c and nf_conntrack_proto_icmpv6.c,
// valid_new), and what IP cannot work without, which passes in every state.
var (
	icmpRequests   = []uint64{8, 13, 15, 17}
	icmpv6Requests = []uint64{128, 139}
	icmpErrors     = []uint64{3, 11, 12}
	icmpv6Needed   = []uint64{1, 2, 3, 4, 130, 131, 132, 133, 134, 135, 136, 141, 142, 143, 148, 149}
)

// strange is the packets of TCP and ICMP that are new to connection tracking and
// cannot be, and the ICMP that passes in every state. TCP that is related begins a
// flow as well; the resets that reject sends, which are related, are no packets that
// somebody expects.
func (l *line) strange(u algebra, way packet.Way) reach.Region {
	of := func(states []packet.State, alternatives ...[]program.Condition) reach.Region {
		return u.Region(reach.Question{Way: way, States: states, Match: alternatives})
	}
	opening := []packet.State{packet.New}
	begins := []packet.State{packet.New, packet.Related}
	tcp := u.Minus(
		of(begins, match(numbers(program.Protocol, packet.TCP))),
		of(begins, match(numbers(program.Protocol, packet.TCP), tcpFlags(trackedFlags, packet.SYN, packet.ACK))))
	icmp := u.Minus(
		of(opening, match(numbers(program.Protocol, packet.ICMP, packet.ICMPv6))),
		of(opening, icmpTypes(icmpRequests, icmpv6Requests)...))
	return u.Or(u.Or(tcp, icmp), of(nil, icmpTypes(icmpErrors, icmpv6Needed)...))
}

func icmpTypes(four, six []uint64) [][]program.Condition {
	return [][]program.Condition{
		match(numbers(program.Protocol, packet.ICMP), numbers(program.ICMPType, four...)),
		match(numbers(program.Protocol, packet.ICMPv6), numbers(program.ICMPv6Type, six...)),
	}
}

// always is what passes beside ICMP whatever the policy says: the answers to the
// host's own DHCP.
func (l *line) always(u algebra, way packet.Way) reach.Region {
	udp := func(from, to uint64) []program.Condition {
		return match(numbers(program.Protocol, packet.UDP), numbers(program.SourcePort, from), numbers(program.Port, to))
	}
	if l.hook != policy.Input {
		var none reach.Region
		return none
	}
	four := u.Region(reach.Question{Way: way, Match: [][]program.Condition{append(udp(67, 68), numbers(program.Family, 4))}})
	six := u.Region(reach.Question{Way: way, From: &linkLocal, Match: [][]program.Condition{udp(547, 546)}})
	return u.Or(four, six)
}

var linkLocal = addrset.FromPrefixes(netip.MustParsePrefix("fe80::/10"))

// untrackedTCP is TCP that opens no flow though nothing tracks it.
func untrackedTCP(u algebra, way packet.Way) reach.Region {
	tcp := u.Region(reach.Question{Way: way, Match: [][]program.Condition{match(numbers(program.Protocol, packet.TCP))}})
	syn := u.Region(reach.Question{Way: way, Match: [][]program.Condition{match(numbers(program.Protocol, packet.TCP), tcpFlags(trackedFlags, packet.SYN))}})
	return u.Minus(tcp, syn)
}

// bypassed is what the states are of that nothing tracks, and that opens no flow:
// TCP without a bare SYN, and what only connection tracking can say.
func bypassed(u algebra, way packet.Way) reach.Region {
	known := u.Region(reach.Question{Way: way, States: []packet.State{packet.Established, packet.Related, packet.Invalid}})
	return u.Or(known, untrackedTCP(u, way))
}

// who is the packets one of whose sides is one of WHO.
func (l *line) who(u algebra, way packet.Way, w *policy.Who, address, device program.Field) reach.Region {
	every := u.Region(reach.Question{Way: way})
	if w == nil {
		return every
	}
	of := func(s addrset.Set) reach.Question {
		switch address {
		case program.Source:
			return reach.Question{Way: way, From: &s}
		case program.Destination:
			return reach.Question{Way: way, To: &s}
		}
		c := program.Condition{Field: address, Addresses: s.Ranges()}
		return reach.Question{Way: way, Match: [][]program.Condition{{c}}}
	}
	fits := u.Region(of(addresses(l.Resolved, w)))
	for _, item := range w.Items {
		zone := l.Zones[item.Name]
		if zone == nil || len(zone.Interfaces) == 0 {
			continue
		}
		q := reach.Question{Way: way}
		if zone.HasNetworks {
			q = of(zone.Networks)
		}
		by := reach.Question{Way: way, Match: [][]program.Condition{match(names(device, zone.Interfaces...))}}
		fits = u.Or(fits, u.And(u.Region(q), u.Region(by)))
	}
	if w.Not {
		return u.Minus(every, fits)
	}
	return fits
}

// addresses is what WHO names without interfaces; Not is not looked at.
func addresses(r *resolve.Resolved, w *policy.Who) (out addrset.Set) {
	for _, item := range w.Items {
		switch zone := r.Zones[item.Name]; {
		case item.Name == "":
			out = out.Union(addrset.Of(item.Literal))
		case zone == nil:
			out = out.Union(r.Sets[item.Name].Addresses)
		case len(zone.Interfaces) == 0:
			out = out.Union(zone.Networks)
		}
	}
	return out
}

// own is a host's own addresses, and what it takes packets to beside them.
func own(f host.Facts) (addresses, here addrset.Set) {
	addresses, broadcasts := f.Addresses()
	return addresses, addresses.Union(broadcasts).Union(itself).Union(toMany)
}

var (
	itself = addrset.FromPrefixes(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	toMany = addrset.FromPrefixes(netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8"), netip.MustParsePrefix("255.255.255.255/32"))
)

func match(c ...program.Condition) []program.Condition { return c }

func names(f program.Field, n ...string) program.Condition {
	return program.Condition{Field: f, Names: n}
}

func numbers(f program.Field, n ...uint64) program.Condition {
	c := program.Condition{Field: f}
	for _, v := range n {
		c.Numbers = append(c.Numbers, program.NumberRange{From: v, To: v})
	}
	return c
}

func tcpFlags(mask uint64, values ...uint64) program.Condition {
	c := numbers(program.TCPFlags, values...)
	c.Mask = mask
	return c
}
