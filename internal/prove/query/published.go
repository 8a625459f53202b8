package query

import (
	"fmt"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// Packets are asked about as they arrive, before anybody rewrites them. Of those
// that another tool leads elsewhere that is known of the ports that the host's
// facts list with where they lead; the rest are judged as if nobody rewrote them.

// rewrittenBefore are first packets of flows, new ones and those that another flow
// expects, that have been rewritten already: their destination (dnat) or source (snat).
func rewrittenBefore(statuses ...string) (out []reach.Question) {
	rewritten := program.Condition{Field: program.Status, Names: statuses}
	for _, at := range ways {
		out = append(out, reach.Question{Way: at.Way, States: []packet.State{packet.New}, Match: [][]program.Condition{{rewritten}}})
	}
	return append(out, expected(rewritten)...)
}

// expected are the first packets of flows that another flow expects. Every policy
// means the same of them as of new ones.
func expected(also ...program.Condition) (out []reach.Question) {
	match := append(also, program.Condition{Field: program.Protocol, Not: true, Numbers: []program.NumberRange{
		{From: packet.ICMP, To: packet.ICMP}, {From: packet.ICMPv6, To: packet.ICMPv6},
	}})
	for _, at := range ways {
		out = append(out, reach.Question{Way: at.Way, States: []packet.State{packet.Related}, Match: [][]program.Condition{match}})
	}
	return out
}

// published is a port that another tool leads elsewhere.
type published struct {
	host.Published
	way       reach.Way        // that it then takes
	questions []reach.Question // its packets of those that are asked for, behind the rewriting
}

// publishedPorts are the ports of which it is known where they lead.
func (w Words) publishedPorts(c Compiled) (out []published, err error) {
	if len(w.begins()) == 0 {
		return nil, nil
	}
	for i, f := range c.Facts.Published {
		again := slices.ContainsFunc(c.Facts.Published[:i], func(g host.Published) bool {
			return g.Protocol == f.Protocol && g.Address == f.Address && g.Port == f.Port && g.To.Addr().Is4() == f.To.Addr().Is4() && leadsKnown(g)
		})
		if again || !leadsKnown(f) {
			continue
		}
		p := published{Published: f, way: reach.Through}
		if own := c.own(); own.Contains(f.To.Addr()) {
			p.way = reach.In
		}
		for _, at := range w.hooks(c.Resolved) {
			if at.Way == p.way {
				if p.questions, err = w.published(c, &p); err != nil {
					return nil, err
				}
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// firstStates are those of first packets of flows, of which NAT is asked.
var firstStates = []packet.State{packet.New, packet.Related}

// begins is which of these the words ask for.
func (w Words) begins() []packet.State {
	return slices.DeleteFunc(slices.Clone(firstStates), func(s packet.State) bool { return !slices.Contains(w.States, s) })
}

// leadsKnown says whether it is known which packets are led where.
func leadsKnown(f host.Published) bool { return f.Port != 0 && f.To.Addr().IsValid() }

// published makes the questions of one port: words may name packets as they
// arrive, and as they become.
func (w Words) published(c Compiled, p *published) (out []reach.Question, err error) {
	a, err := w.parse(c.Resolved, p.way, false)
	arrives := p.arrives(c)
	if err != nil || arrives.IsEmpty() || p.way == reach.In && (a.out != nil || hasInterface(c.Resolved, a.to)) {
		return nil, err
	}
	end := addrset.Of(addrset.Range{From: p.To.Addr(), To: p.To.Addr()})
	number := func(f program.Field, n uint16) program.Condition {
		return program.Condition{Field: f, Numbers: []program.NumberRange{{From: uint64(n), To: uint64(n)}}}
	}
	port := p.To.Port()
	if port == 0 {
		port = p.Port
	}
	is := append(a.conditions(c.Resolved, p.way),
		program.Condition{Field: program.Status, Names: []string{"dnat"}},
		number(program.OriginalPort, p.Port), number(program.Port, port))
	if n, known := packet.PortProtocol(p.Protocol); known {
		is = append(is, program.Condition{Field: program.Protocol, Numbers: []program.NumberRange{{From: uint64(n), To: uint64(n)}}})
	}
	for _, f := range sides(c.Resolved, a.from, program.InInterface) {
		for _, t := range sides(c.Resolved, a.to, program.OutInterface) {
			asked := func(at addrset.Set) []program.Condition {
				return slices.Concat(is, f.conditions, t.conditions, []program.Condition{{Field: program.OriginalDestination, Addresses: at.Ranges()}})
			}
			q := reach.Question{Way: p.way, States: w.begins(), From: elsewhere(c.Resolved, f.addresses, p.way, true), To: &end}
			at := arrives
			if t.addresses != nil {
				at = arrives.Intersect(*t.addresses)
			}
			if !at.IsEmpty() {
				q.Match = Alternatives(a.services, program.OriginalPort, asked(at))
				out = append(out, q)
			}
			if t.addresses == nil || t.addresses.Contains(p.To.Addr()) {
				q.Match = Alternatives(a.services, program.Port, asked(arrives))
				out = append(out, q)
			}
		}
	}
	return out, nil
}

// arrives is the addresses of this host at which the port is published.
func (p *published) arrives(c Compiled) addrset.Set {
	if p.Address.IsValid() {
		return addrset.Of(addrset.Range{From: p.Address, To: p.Address})
	}
	if p.To.Addr().Is4() {
		return c.own().Only4()
	}
	return c.own().Only6()
}

// arrivals are the packets as they arrive that the other tool leads elsewhere.
func (p *published) arrivals(c Compiled) reach.Question {
	to := p.arrives(c)
	match := []program.Condition{{Field: program.Port, Numbers: []program.NumberRange{{From: uint64(p.Port), To: uint64(p.Port)}}}}
	if n, known := packet.PortProtocol(p.Protocol); known {
		match = append(match, program.Condition{Field: program.Protocol, Numbers: []program.NumberRange{{From: uint64(n), To: uint64(n)}}})
	}
	return reach.Question{Way: reach.In, States: firstStates, To: &to, Match: [][]program.Condition{match}}
}

// arrived gives a packet behind the rewriting as it arrived; false where the policy
// itself leads it elsewhere before.
func (p *published) arrived(c Compiled, behind packet.Packet) (came packet.Packet, is bool) {
	came = behind
	came.Destination, came.Port, came.DestinationLocal = behind.Original.Destination, p.Port, packet.Yes
	came.DNAT, came.SNAT, came.Original = false, false, packet.Tuple{}
	return came, Follow(c.Resolved, came, reach.In).Published
}

// family leaves the addresses that may ask for the port; nil is any.
func (p *published) family(s *addrset.Set) *addrset.Set {
	if s == nil {
		return nil
	}
	of := s.Only6()
	if p.To.Addr().Is4() {
		of = s.Only4()
	}
	return &of
}

// text says where the port leads.
func (p *published) text() string {
	to := p.To.String()
	if p.To.Port() == 0 {
		to = p.To.Addr().String()
	}
	return "led to " + to + " by another tool"
}

// Notes says what answers leave out since nobody knows it.
func Notes(c Compiled) (out []string) {
	if !c.Facts.Known {
		return nil
	}
	if foreignUnread(c.Facts) {
		out = append(out, "the rules of other tools could not be read; what they rewrite is judged as it arrives")
	}
	for _, f := range c.Facts.Published {
		if !leadsKnown(f) {
			out = append(out, fmt.Sprintf("where another tool leads %s is not known; such packets are judged as they arrive", f))
		}
	}
	rewrites := func(f host.ForeignChain) bool {
		return f.Type == "nat" && f.Hook == "prerouting" && f.Rewrites
	}
	if i := slices.IndexFunc(c.Facts.ForeignChains, rewrites); i >= 0 && len(c.Facts.Published) == 0 {
		f := c.Facts.ForeignChains[i]
		out = append(out, fmt.Sprintf("what chain %s of table %s %s rewrites is not known; such packets are judged as they arrive", f.Name, f.Family, f.Table))
	}
	return out
}
