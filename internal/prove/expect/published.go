package expect

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// promise is an expectation with the packets that it is about: those of one line,
// or, where it is about published ports, those that a DNAT of the policy leads on
// and those that a DNAT of another tool has led on already.
type promise struct {
	*line
	parts []*line
}

// rewriting is who rewrites the destination of a line's packets.
type rewriting int

const (
	asItMay   rewriting = iota // by the policy, or not at all
	byPolicy                   // by a line of nat, with state
	byAnother                  // by another tool, as the host's facts have it
)

// published is the parts of a line about published ports.
func published(l *line) (parts []*line) {
	own := *l
	own.by = byPolicy
	parts = append(parts, &own)
	if elsewhere := publishedFor(l); len(elsewhere) > 0 {
		other := *l
		other.by, other.elsewhere = byAnother, elsewhere
		parts = append(parts, &other)
	}
	return parts
}

// publishedFor is what other tools lead on of a line's services.
func publishedFor(l *line) []host.Published {
	return slices.DeleteFunc(slices.Clone(l.Facts.Published), func(f host.Published) bool {
		return len(l.Services) > 0 && !slices.ContainsFunc(l.Services, func(s policy.ServiceRef) bool {
			return slices.ContainsFunc(s.Matches, func(m policy.ServiceMatch) bool { return publishes(f, m) })
		})
	})
}

func publishes(f host.Published, m policy.ServiceMatch) bool {
	number, _ := packet.PortProtocol(f.Protocol)
	return m.Any || (f.Protocol == "" || m.Protocol == number) &&
		(f.Port == 0 || len(m.Ports) == 0 || slices.ContainsFunc(m.Ports, func(p policy.PortRange) bool { return p.From <= f.Port && f.Port <= p.To }))
}

// led is the packets of a way that another tool has led to where its rules say.
// Where these lead cannot be read of some, and any place is meant then.
func (l *line) led(u algebra, way packet.Way) (out reach.Region) {
	_, here := own(l.Facts)
	home := u.Region(reach.Question{Way: way, To: &here})
	for _, f := range l.elsewhere {
		q := reach.Question{Way: way}
		var c []program.Condition
		if f.Protocol != "" {
			number, _ := packet.PortProtocol(f.Protocol)
			c = append(c, numbers(program.Protocol, uint64(number)))
		}
		if f.Port != 0 {
			c = append(c, numbers(program.OriginalPort, uint64(f.Port)))
		}
		if port := ledPort(f); port != 0 {
			c = append(c, numbers(program.Port, uint64(port)))
		}
		c = append(c, l.asked(f))
		if to := f.To.Addr(); to.IsValid() {
			one := addrset.FromPrefixes(netip.PrefixFrom(to, to.BitLen()))
			q.To = &one
		}
		q.Match = [][]program.Condition{c}
		region := u.Region(q)
		if way == packet.Through {
			region = u.And(region, outBy(u, way, l.Facts, f.To.Addr()))
			region = u.Minus(u.And(region, u.Region(reach.Question{Way: way, Match: [][]program.Condition{{names(program.DestinationType, "unicast")}}})), home)
		} else {
			region = u.And(region, home)
		}
		out = u.Or(out, region)
	}
	return out
}

// ledPort is the port that packets are led to; 0 where that is not known.
func ledPort(f host.Published) uint16 {
	if f.To.IsValid() && f.To.Port() == 0 {
		return f.Port
	}
	return f.To.Port()
}

// asked is the addresses that the outside asks for what is published.
func (l *line) asked(f host.Published) program.Condition {
	mine, _ := own(l.Facts)
	if f.Address.IsValid() {
		mine = addrset.FromPrefixes(netip.PrefixFrom(f.Address, f.Address.BitLen()))
	}
	switch to := f.To.Addr(); {
	case to.IsValid() && to.Is4():
		mine = mine.Only4()
	case to.IsValid():
		mine = mine.Only6()
	}
	return program.Condition{Field: program.OriginalDestination, Addresses: mine.Ranges()}
}

// ledTo says whether an outcome leads packets on by a DNAT, and where to; the
// address is not valid where it is not one alone.
func ledTo(o *reach.Outcome) (to netip.Addr, is bool) {
	for _, text := range o.Change {
		if where, about := strings.CutPrefix(text, "destination "); about {
			is = true
			to, _ = netip.ParseAddr(strings.TrimPrefix(where, "to "))
		}
	}
	return to, is
}

// outBy is the packets of a way that go out by the interface whose network has an
// address; all where no interface has it.
func outBy(u algebra, way packet.Way, f host.Facts, to netip.Addr) reach.Region {
	every := u.Region(reach.Question{Way: way})
	if way != packet.Through || !to.IsValid() {
		return every
	}
	var by []string
	for _, i := range f.Interfaces {
		if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Masked().Contains(to) }) {
			by = append(by, i.Name)
		}
	}
	if len(by) == 0 {
		return every
	}
	return u.Region(reach.Question{Way: way, Match: [][]program.Condition{{names(program.OutInterface, by...)}}})
}

// outByAny asks for all that outBy may be asked for.
func outByAny(u algebra, way packet.Way, f host.Facts, by rewriting) {
	if by == byPolicy && way == packet.Through {
		for _, i := range f.Interfaces {
			u.Region(reach.Question{Way: way, Match: [][]program.Condition{{names(program.OutInterface, i.Name)}}})
		}
	}
}

// unpublished says that nobody is known to rewrite packets of a line about
// published ports.
func unpublished(r *resolve.Resolved) (why Unjudged, text string) {
	if !r.Facts.Known {
		return UnknownHost, "nothing was judged: the policy rewrites no such packet, and what other tools rewrite is not known"
	}
	return NotPublished, "nothing was judged: neither a line of nat nor another tool on this host rewrites such a packet now"
}
