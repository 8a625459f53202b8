package check

import (
	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// led is ports that a rewriting of the destination leads to another port.
type led struct {
	hook     policy.Hook // where what is led there is decided
	family   int         // 0: both
	services policy.ServiceMatch
	in       *policy.Word // zone that it comes in by; nil: any
	asked    addrset.Set  // addresses that are asked; empty: any
	to       addrset.Set  // address that it leads to; empty: this host's
	port     uint16       // that it leads to
	line     *Related     // that does so; nil: another tool
}

// openBehind finds published rules that open a port of management to everybody by
// another number: the redirect behind the rule leads there.
func (c *checker) openBehind(s *policy.Section, st *standing, ways []led) {
	r := st.rule
	bounded := r.Limit != nil && r.Limit.PerSource || r.Max != nil && r.Max.PerSource
	for i := range ways {
		w := &ways[i]
		if w.hook != s.Hook {
			continue
		}
		for j := range management {
			m := &management[j]
			if m.protocol != w.services.Protocol || w.port < m.from || w.port > m.to || bounded && m.withLimit {
				continue
			}
			// What the same number opens is found by that.
			asked := numbersOf(matchOf(w.services, 4)...).minus(numbers{wire(m.protocol, m.from, m.to)})
			found := c.openTo(s.Hook, c.ledBoxes(s.Hook, st.left, w), original, asked)
			if len(found) == 0 {
				continue
			}
			pos, hint := openHint(r, m.withLimit)
			by := "another tool"
			if w.line != nil {
				by = "the redirect on " + place(w.line.Pos, pos)
			}
			f := c.report(OpenManagement, Warning, pos, hint, "open to everybody on the internet: %s/%d (%s), where %s sends %s",
				protocolNames[m.protocol], w.port, m.what, by, servicesInWords(asked, 4))
			if w.line != nil {
				f.Related = append(f.Related, *w.line)
			}
			c.shows(f, s.Hook, found, r)
		}
	}
}

// ledBoxes is the parts of boxes that are led by one way.
func (c *checker) ledBoxes(hook policy.Hook, boxes []box, w *led) []box {
	var parts []box
	behind := c.interfacesOf(w.to)
	for _, b := range boxes {
		if w.family != 0 && familyOfBox(&b) != w.family {
			continue
		}
		b.numbers[service] = b.numbers[service].intersect(numbers{wire(w.services.Protocol, w.port, w.port)})
		if !w.to.IsEmpty() {
			b.addresses[destination] = b.addresses[destination].Intersect(w.to)
		}
		if !w.asked.IsEmpty() {
			b.addresses[originalDestination] = b.addresses[originalDestination].Intersect(w.asked)
		}
		if w.in != nil {
			if z := c.Zones[w.in.Text]; z != nil && len(z.Interfaces) > 0 {
				b.numbers[in] = b.numbers[in].intersect(c.names.of(z.Interfaces))
			}
		}
		if hook == policy.Forward && len(behind) > 0 {
			b.numbers[out] = b.numbers[out].intersect(behind)
		}
		if !b.empty() {
			parts = append(parts, b)
		}
	}
	return parts
}

// ledElsewhere is what leads ports to others: lines of the policy and other tools.
func (c *checker) ledElsewhere() (out []led) {
	for _, n := range c.policy.NAT {
		if n.Kind != policy.Redirect || n.Target == nil || n.Target.Port == 0 || n.Service == nil {
			continue
		}
		var to addrset.Set
		if n.Target.Address.IsValid() {
			to = addrset.Of(n.Target.Address)
		}
		for _, m := range n.Service.Matches {
			out = append(out, led{
				hook: c.hookTo(to), family: n.Family, services: m, in: n.In, asked: c.redirected(n), to: to, port: n.Target.Port,
				line: &Related{n.Pos, n.Text},
			})
		}
	}
	for _, p := range c.facts.Published {
		protocol := map[string]uint8{"tcp": packet.TCP, "udp": packet.UDP}[p.Protocol]
		if p.Port == 0 || protocol == 0 || !p.To.Addr().IsValid() || p.To.Port() == 0 || p.To.Addr().IsLoopback() {
			continue
		}
		out = append(out, c.ledByOther(p, protocol))
	}
	return out
}

func (c *checker) ledByOther(p host.Published, protocol uint8) led {
	w := led{
		family: familyOfAddress(p.To.Addr()), to: single(p.To.Addr()), port: p.To.Port(),
		services: policy.ServiceMatch{Protocol: protocol, Ports: []policy.PortRange{{From: p.Port, To: p.Port}}},
	}
	if p.Address.IsValid() && !p.Address.IsUnspecified() {
		w.asked = single(p.Address)
	}
	w.hook = c.hookTo(w.to)
	return w
}

// hookTo is where packets to an address are decided; an empty one is this host's.
func (c *checker) hookTo(to addrset.Set) policy.Hook {
	if to.IsEmpty() || c.own.Overlaps(to) {
		return policy.Input
	}
	return policy.Forward
}
