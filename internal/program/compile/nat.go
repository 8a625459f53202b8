package compile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

const (
	preroutingNAT  = "prerouting_nat"
	outputNAT      = "output_nat"
	postroutingNAT = "postrouting_nat"
	postroutingMap = "postrouting_map"
)

// nat records the rewritings. They permit nothing: forward decides on the
// addresses as they are between the two rewritings.
func (c *compiler) nat() {
	for _, n := range c.policy.NAT {
		switch {
		case n.Kind == policy.Masquerade:
			c.masquerade(n)
		case n.Kind == policy.Redirect:
			c.redirect(n)
		case n.Stateless:
			c.mapStateless(n)
		default:
			c.mapTracked(n)
		}
	}
}

func (c *compiler) natRule(n *policy.NAT, chain string, m match, a program.Action, comment string) {
	o := originOf(n.Pos, n.Text)
	switch chain {
	case preroutingNAT:
		c.base(program.Prerouting, program.NAT, chain, "destinations that are rewritten")
	case outputNAT:
		c.base(program.Output, program.NAT, chain, "destinations that are rewritten for the host itself")
	case postroutingNAT:
		c.base(program.Postrouting, program.NAT, chain, "sources that are rewritten")
	case postroutingMap:
		c.base(program.Postrouting, program.Raw, chain, "sources that are rewritten without state")
	}
	id := c.natID(n)
	actions := c.counted(id, o, n.Text, a)
	if comment == "" {
		comment = n.Text
	}
	c.append(chain, program.Rule{Stage: program.StageRules, ID: id, Match: m, Actions: actions, Origin: o, Comment: comment})
}

func (c *compiler) natID(n *policy.NAT) string {
	if c.natIDs == nil {
		c.natIDs = map[*policy.NAT]string{}
	}
	if c.natIDs[n] == "" {
		c.natIDs[n] = c.id("nat", n.Text)
	}
	return c.natIDs[n]
}

func (c *compiler) masquerade(n *policy.NAT) {
	var first match
	if n.Family != 0 {
		first = match{family(n.Family)}
	}
	first = first.and(c.zoneInterface(n.Out, program.OutInterface)...)
	action := func(ports program.NumberRange) program.Action { return program.Masquerade{Ports: ports} }
	if n.As != nil {
		action = func(ports program.NumberRange) program.Action { return program.SNAT{To: n.As.Range.From, Ports: ports} }
		first = match{familyOf(n.As.Range.From)}.and(c.zoneInterface(n.Out, program.OutInterface)...)
	}
	ways := c.who(n.From, side{address: program.Source, iface: program.InInterface})
	for _, p := range []uint8{packet.TCP, packet.UDP, packet.SCTP} {
		for _, from := range ways {
			c.keepOut(n, p, first.and(from...).and(protocol(p)), action, "")
		}
	}
	for _, from := range ways {
		c.natRule(n, postroutingNAT, first.and(from...), action(program.NumberRange{}), "")
	}
}

// keepOut rewrites the sources of a protocol so that no connection gets a port that
// bypasses tracking, whose answers would come in untracked and stay with the host.
// A port between two of those stays between them; one of those becomes another.
// Nothing is written where none bypasses.
func (c *compiler) keepOut(n *policy.NAT, protocol uint8, m match, action func(program.NumberRange) program.Action, comment string) {
	taken := c.bypassedPorts(protocol)
	if len(taken) == 0 {
		return
	}
	var free []program.NumberRange
	next := uint64(1)
	for _, t := range taken {
		if t.From > next {
			free = append(free, program.NumberRange{From: next, To: t.From - 1})
		}
		next = max(next, t.To+1)
	}
	if next <= maxPort {
		free = append(free, program.NumberRange{From: next, To: maxPort})
	}
	if len(free) == 0 {
		return
	}
	widest := free[0]
	for _, f := range free {
		if f.To-f.From > widest.To-widest.From {
			widest = f
		}
		c.natRule(n, postroutingNAT, m.and(portRange(program.SourcePort, uint16(f.From), uint16(f.To))), action(f), comment)
	}
	c.natRule(n, postroutingNAT, m, action(widest), comment)
}

const maxPort = 65535

// bypassedPorts is the ports of a protocol that bypass tracking, in their order.
func (c *compiler) bypassedPorts(protocol uint8) (out []program.NumberRange) {
	for _, m := range c.bypassedServices() {
		if protocolOf(m) != protocol {
			continue
		}
		for _, cond := range m {
			if cond.Field == program.SourcePort {
				out = append(out, cond.Numbers...)
			}
		}
	}
	sorting.By(out, func(a, b program.NumberRange) int { return cmp.Compare(a.From, b.From) })
	return out
}

// redirect leads connections to this host's addresses elsewhere: those of the
// zone, or those that the line names. A connection from any side is led, so
// that the machines behind the host reach the service by the address that the
// world uses (hairpin): the set of the zone's addresses is asked first, and of packets
// that come in by the zone the routing table too, which knows addresses that are new.
func (c *compiler) redirect(n *policy.NAT) {
	where := c.redirected(n)
	target := n.Target
	to := target.Address.From
	var families match
	if to.IsValid() {
		families = match{familyOf(to)}
	}
	var action program.Action = program.DNAT{To: to, Port: target.Port}
	if !to.IsValid() {
		action = program.Redirect{Port: target.Port}
	}
	for i, service := range services([]policy.ServiceRef{*n.Service}, program.Port) {
		m := families.and(service...)
		if len(n.On) == 0 {
			// Packets of all other ports are asked for theirs once.
			led := fmt.Sprintf("%s_%d", c.natID(n), i+1)
			c.base(program.Prerouting, program.NAT, preroutingNAT, "destinations that are rewritten")
			c.chain(led, n.Text)
			c.append(preroutingNAT, program.Rule{Stage: program.StageRules, Match: m, Actions: []program.Action{program.Jump{Chain: led}}, Origin: originOf(n.Pos, n.Text), Comment: n.Text})
			of := slices.DeleteFunc(slices.Clone(m), func(c program.Condition) bool { return c.Field == program.Port })
			c.natRule(n, led, of.and(where), action, n.Text+" (from any side)")
			c.natRule(n, led, of.and(c.zoneInterface(n.In, program.InInterface)...).and(names(program.DestinationHere, "local")), action, "")
		} else {
			c.natRule(n, preroutingNAT, m.and(where), action, n.Text+" (from any side)")
		}
		c.natRule(n, outputNAT, m.and(where), action, n.Text+" (from the host itself)")
	}
	if to.IsValid() {
		c.hairpin(n)
	}
}

// redirected gives the condition that a destination is one that a redirect is on.
func (c *compiler) redirected(n *policy.NAT) program.Condition {
	if len(n.On) == 0 {
		return inSet(program.Destination, c.own(n.In.Text))
	}
	var on addrset.Set
	for _, r := range n.On {
		on = on.Union(addrset.Of(r.Range))
	}
	return addresses(program.Destination, on)
}

// own gives the id of the set of the host's own addresses in a zone with interfaces;
// "": of all of them. It is edited in place when they change.
func (c *compiler) own(zone string) string {
	id := program.OwnSet(zone)
	if c.sets[id] {
		return id
	}
	c.sets[id] = true
	set := program.Set{ID: id, Key: []program.Field{program.Destination}, Life: program.Followed, Follow: &program.Following{}}
	var on func(string) bool
	if z := c.Zones[zone]; z != nil {
		set.Follow.Interfaces, on = z.Interfaces, z.HasInterface
	}
	set.Hold(program.Held{Addresses: c.Facts.Own(on)})
	c.program.Sets = append(c.program.Sets, set)
	return id
}

// hairpin: a machine beside the target that asks by the outside's address would
// get the answer from the target itself, from an address that it did not ask.
// So the host puts itself between.
func (c *compiler) hairpin(n *policy.NAT) {
	to := n.Target.Address.From
	neighbours := c.neighbourhood(to)
	c.program.Rests = append(c.program.Rests, program.Rest{Beside: to})
	if neighbours.IsEmpty() {
		c.note(originOf(n.Pos, n.Text), "no zone or interface has the network of "+to.String()+": machines beside it cannot use the redirect")
		return
	}
	for _, service := range services([]policy.ServiceRef{*n.Service}, program.Port) {
		m := match{names(program.Status, "dnat"), addresses(program.Destination, addrset.Of(n.Target.Address)), addresses(program.Source, neighbours)}
		for _, cond := range service {
			if cond.Field == program.Port && n.Target.Port != 0 {
				cond = portRange(program.Port, n.Target.Port, n.Target.Port)
			}
			m = m.and(cond)
		}
		action := func(ports program.NumberRange) program.Action { return program.Masquerade{Ports: ports} }
		c.keepOut(n, protocolOf(service), m, action, n.Text+" (hairpin)")
		c.natRule(n, postroutingNAT, m, action(program.NumberRange{}), n.Text+" (hairpin)")
	}
}

// neighbourhood is the networks of zones and interfaces that hold the address.
func (c *compiler) neighbourhood(a netip.Addr) addrset.Set {
	var out addrset.Set
	for _, z := range c.policy.Zones {
		for r := range c.Zones[z.Name].Networks.Each() {
			if one := addrset.Of(r); one.Contains(a) {
				out = out.Union(one)
			}
		}
	}
	return out.Union(addrset.FromPrefixes(c.Facts.Beside(a)...))
}

// mapTracked rewrites a prefix one to one with state, both ways.
func (c *compiler) mapTracked(n *policy.NAT) {
	outside, inside := mapPrefixes(n)
	in, out := addrset.Of(n.Outside.Range), addrset.Of(n.Inside.Range)
	c.natRule(n, preroutingNAT, match{addresses(program.Destination, in)}, program.DNATPrefix{From: outside, To: inside}, "")
	c.natRule(n, outputNAT, match{addresses(program.Destination, in)}, program.DNATPrefix{From: outside, To: inside}, n.Text+" (from the host itself)")
	c.natRule(n, postroutingNAT, match{addresses(program.Source, out), not(fromHost)}, program.SNATPrefix{From: inside, To: outside}, "")
}

// mapStateless rewrites a prefix one to one in the headers alone: destinations
// before routing, sources after it. What goes between the machines and the
// host itself is neither rewritten nor untracked.
func (c *compiler) mapStateless(n *policy.NAT) {
	c.rawChains()
	outside, inside := mapPrefixes(n)
	o := originOf(n.Pos, n.Text)
	id := c.natID(n)
	fromInside := addresses(program.Source, addrset.Of(n.Inside.Range))
	toOutside := addresses(program.Destination, addrset.Of(n.Outside.Range))
	c.append(prerouting,
		program.Rule{
			Stage: program.StageTrack, ID: id, Match: match{fromInside, not(toHost)},
			Actions: []program.Action{program.NoTrack{}}, Origin: o, Comment: n.Text,
		},
		program.Rule{
			Stage: program.StageTrack, ID: id, Match: match{toOutside},
			Actions: c.counted(id, o, n.Text, program.NoTrack{}, program.MapDestination{From: outside, To: inside}),
			Origin:  o, Comment: n.Text,
		})
	// A reset belongs to no connection, so tracking would take it for invalid.
	for _, reset := range []struct {
		end     program.Condition
		comment string
	}{
		{fromInside, "resets that reject sends in the name of these machines"},
		{addresses(program.Destination, addrset.Of(n.Inside.Range)), "resets that reject sends to these machines"},
	} {
		c.append(output, program.Rule{
			Stage: program.StageTrack, ID: id, Match: match{reset.end, not(fromHost)},
			Actions: []program.Action{program.NoTrack{}}, Origin: o, Comment: reset.comment,
		})
	}
	c.natRule(n, postroutingMap, match{fromInside, untracked, not(fromHost)}, program.MapSource{From: inside, To: outside}, "")
	c.note(o, "a stateless map rewrites headers only: the packet that an ICMP error carries inside keeps the inner address, and the host itself reaches these machines by their inner addresses alone")
}

func mapPrefixes(n *policy.NAT) (outside, inside netip.Prefix) {
	outside, _ = n.Outside.Range.Prefix()
	inside, _ = n.Inside.Range.Prefix()
	return outside, inside
}

func (c *compiler) stateless() bool {
	for _, n := range c.policy.NAT {
		if n.Stateless {
			return true
		}
	}
	return false
}

func familyOf(a netip.Addr) program.Condition {
	if a.Is4() {
		return family(4)
	}
	return family(6)
}
