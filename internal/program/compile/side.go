package compile

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
)

// direction is how a rule's two sides lie in the packet: as the rule says, or
// turned round for what answers it.
type direction struct {
	source, destination         program.Field
	in, out                     program.Field
	sourcePort, destinationPort program.Field
}

var (
	straight = direction{program.Source, program.Destination, program.InInterface, program.OutInterface, program.SourcePort, program.Port}
	mirrored = direction{program.Destination, program.Source, program.OutInterface, program.InInterface, program.Port, program.SourcePort}
)

// inlineRanges is up to how many ranges are in the rule itself.
const inlineRanges = 4

// side is one side of a packet: where its address and its interface stand and,
// for endpoints, its port, and of which protocol.
type side struct {
	address, iface, port program.Field
	protocol             uint8
}

// who gives the ways, one of which has to hold, for a side of a rule. No way at
// all means that nothing matches; a nil who asks nothing, which is one empty
// way.
func (c *compiler) who(w *policy.Who, at side) []match {
	if w == nil {
		return []match{nil}
	}
	parts := c.parts(w, at)
	if !w.Not {
		return parts
	}
	out := []match{nil}
	for _, part := range parts {
		var next []match
		for _, m := range out {
			for _, way := range negate(part) {
				next = append(next, m.and(way...))
			}
		}
		out = next
	}
	return out
}

// negate gives the ways of not fitting a match: a condition fails and those
// before it hold, so that no two ways hold at once.
func negate(m match) []match {
	var out []match
	for i := range m {
		out = append(out, m[:i].and(not(m[i])))
	}
	return out
}

// group is the addresses of a side: sets by name and literals, as one union.
type group struct {
	names   []string // of sets and zones without interfaces
	sets    []addrset.Set
	literal addrset.Set
}

func (g group) union() addrset.Set {
	s := g.literal
	for _, o := range g.sets {
		s = s.Union(o)
	}
	return s
}

// parts gives a match for each part of a side: one for all its addresses, one
// for each zone with interfaces, one for each set of endpoints.
func (c *compiler) parts(w *policy.Who, at side) []match {
	var g group
	var out []match
	for _, item := range w.Items {
		if item.Name == "" {
			g.literal = g.literal.Union(addrset.Of(item.Literal))
			continue
		}
		if z := c.Zones[item.Name]; z != nil {
			if len(z.Interfaces) == 0 {
				g.names, g.sets = append(g.names, z.Name), append(g.sets, z.Networks)
				continue
			}
			out = append(out, c.zone(z, at.address, at.iface))
			continue
		}
		s := c.Sets[item.Name]
		switch {
		case s.IsEndpoints():
			if cond, ok := c.endpoint(at, s); ok {
				out = append(out, match{cond})
			}
		case s.Expires, s.Others: // what comes and goes in it is in no other set
			out = append(out, match{inSet(at.address, c.named(s))})
		default:
			g.names, g.sets = append(g.names, s.Name), append(g.sets, s.Addresses)
		}
	}
	if cond, ok := c.group(at.address, g); ok {
		out = append([]match{{cond}}, out...)
	}
	return out
}

// zone gives the match of a zone with interfaces, and of its networks at the
// same time where it has some.
func (c *compiler) zone(z *resolve.Zone, address, iface program.Field) match {
	m := match{c.interfaces(iface, z)}
	if !z.HasNetworks {
		return m
	}
	if z.Networks.Len4()+z.Networks.Len6() <= inlineRanges {
		return m.and(addresses(address, z.Networks))
	}
	return m.and(inSet(address, c.addressSet(z.Name, z.Networks, originOf(z.Pos, z.Name))))
}

// group gives the condition that an address is of the group; not ok means that
// no address is.
func (c *compiler) group(f program.Field, g group) (program.Condition, bool) {
	all := g.union()
	if all.IsEmpty() {
		return program.Condition{}, false
	}
	if len(g.names) == 1 && g.literal.IsEmpty() {
		if s := c.Sets[g.names[0]]; s != nil {
			return inSet(f, c.named(s)), true
		}
	}
	if all.Len4()+all.Len6() <= inlineRanges {
		return addresses(f, all), true
	}
	id := identifier(slices.Concat([]string{"group"}, g.names, literalName(g.literal))...)
	return inSet(f, c.addressSet(id, all, program.Origin{})), true
}

func literalName(s addrset.Set) []string {
	if s.IsEmpty() {
		return nil
	}
	return []string{"literal" + hash(s.String())}
}

// zoneInterface gives the condition of "in ZONE" and "out ZONE": the interface
// alone; a zone of networks alone has no interface to ask.
func (c *compiler) zoneInterface(w *policy.Word, f program.Field) match {
	if w == nil {
		return nil
	}
	if z := c.Zones[w.Text]; len(z.Interfaces) > 0 {
		return match{c.interfaces(f, z)}
	}
	return nil
}

// The word is the same on both sides, or this does not compile.
var _ = map[bool]struct{}{false: {}, resolve.RouteInterfaces == program.DefaultRoute: {}}

// interfaces gives the condition that the interface is one of the zone's. What the
// host decides of them is asked of a set, which is edited in place when that changes.
func (c *compiler) interfaces(f program.Field, z *resolve.Zone) program.Condition {
	if z.FollowsRoute() && !c.sets[program.DefaultRouteSet] {
		c.sets[program.DefaultRouteSet] = true
		set := program.Set{
			ID: program.DefaultRouteSet, Key: []program.Field{program.InInterface}, Life: program.Followed,
			Follow: &program.Following{Interfaces: []string{program.DefaultRoute}},
		}
		set.Hold(program.Held{Names: c.Facts.DefaultRoute})
		c.program.Sets = append(c.program.Sets, set)
	}
	for _, name := range z.Interfaces {
		if name != program.DefaultRoute && !strings.HasSuffix(name, "*") && !slices.ContainsFunc(c.program.Rests, func(r program.Rest) bool { return r.Named == name }) {
			c.program.Rests = append(c.program.Rests, program.Rest{Named: name})
		}
	}
	return names(f, z.Interfaces...)
}
