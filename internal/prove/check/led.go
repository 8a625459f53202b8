package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// redirectsClosed finds redirects that lead somewhere which no rule lets anybody
// through to: NAT permits nothing.
func (c *checker) redirectsClosed() {
	for _, n := range c.policy.NAT {
		if n.Kind != policy.Redirect || n.Target == nil || n.Service == nil {
			continue
		}
		var to addrset.Set
		if n.Target.Address.IsValid() {
			to = addrset.Of(n.Target.Address)
		}
		s := c.section(c.hookTo(to))
		if s == nil {
			continue
		}
		led := c.ledTo(s.Hook, n, to)
		packets, ok := c.effort.minus(led, c.banned(s.Hook))
		if !ok || len(packets) == 0 {
			continue
		}
		if f := c.fate(s, packets); !f.known || f.allowed {
			continue
		}
		where := fmt.Sprintf("%s refuses it", s.Hook)
		f := c.report(RedirectClosed, Warning, n.Pos, fmt.Sprintf("add to %s, for those who should use it: allow published %s from WHO", s.Hook, firstService(n.Service)),
			"no rule allows the packets that this line redirects: %s", where)
		c.shows(f, s.Hook, packets, nil)
	}
}

// ledTo is the packets that a redirect leads to its target, as the rules there meet them.
func (c *checker) ledTo(hook policy.Hook, n *policy.NAT, to addrset.Set) (out []box) {
	for _, family := range []int{4, 6} {
		if n.Family != 0 && n.Family != family || !to.IsEmpty() && to.Has4() != (family == 4) {
			continue
		}
		for _, m := range n.Service.Matches {
			for _, asked := range matchOf(m, family) {
				whole := c.universe(hook, family)
				whole.numbers[original] = numbersOf(asked)
				w := led{family: family, services: m, in: n.In, asked: c.redirected(n), to: to, port: n.Target.Port}
				if n.Target.Port != 0 {
					out = append(out, c.ledBoxes(hook, []box{whole}, &w)...)
					continue
				}
				for _, r := range m.Ports { // the port stays
					if r.From == r.To {
						w.port, whole.numbers[original] = r.From, numbersOf(wire(m.Protocol, r.From, r.From))
						out = append(out, c.ledBoxes(hook, []box{whole}, &w)...)
					}
				}
				break
			}
		}
	}
	return realPackets(out)
}

// firstService names what a redirect is about, or the first of it.
func firstService(s *policy.ServiceRef) string {
	for _, m := range s.Matches {
		if len(m.Ports) == 0 {
			continue
		}
		p := m.Ports[0]
		if p.From == p.To {
			return fmt.Sprintf("%s/%d", protocolNames[m.Protocol], p.From)
		}
		return fmt.Sprintf("%s/%d-%d", protocolNames[m.Protocol], p.From, p.To)
	}
	return "SERVICE"
}

// inputPublished finds rules of input for a port that another tool leads to a
// container: such packets never come to input, so the rule decides nothing.
func (c *checker) inputPublished() {
	s := c.section(policy.Input)
	if s == nil {
		return
	}
	for _, st := range c.standings(s) {
		if !st.own || st.rule.Published || st.rule.Action == policy.ClampMSS {
			continue
		}
		var ports []string
		for _, p := range c.facts.Published {
			protocol, _ := packet.PortProtocol(p.Protocol)
			to := p.To.Addr()
			if p.Port == 0 || protocol == 0 || !to.IsValid() || to.IsLoopback() || c.own.Contains(to) || c.onlyFrom(st.rule, to) {
				continue
			}
			port, family := wire(protocol, p.Port, p.Port), familyOfAddress(to)
			takes := func(b box) bool {
				named := slices.Contains(b.numbers[service], port) // alone, not within a range
				asked := !p.Address.IsValid() || p.Address.IsUnspecified() || single(p.Address).ContainsSet(b.addresses[destination])
				return named && familyOfBox(&b) == family && asked
			}
			if text := p.String(); slices.ContainsFunc(st.packets, takes) && !slices.Contains(ports, text) {
				ports = append(ports, text)
			}
		}
		if len(ports) == 0 {
			continue
		}
		verb := map[bool]string{true: "is", false: "are"}[len(ports) == 1]
		c.report(InputPublished, Warning, st.rule.Pos, "write it in forward: "+publishedForm(st.rule),
			"another tool rewrites these packets before input is evaluated: %s %s decided by forward", english.Few(ports, 3), verb)
	}
}

// onlyFrom says that a rule is about what comes from the network of an address alone:
// the tool leads nothing elsewhere that its own containers send.
func (c *checker) onlyFrom(r *policy.Rule, to netip.Addr) bool {
	words := []string{}
	if r.In != nil {
		words = append(words, r.In.Text)
	}
	if r.From != nil && !r.From.Not && len(r.From.Items) == 1 {
		words = append(words, r.From.Items[0].Name)
	}
	for _, word := range words {
		z := c.Zones[word]
		if z == nil || len(z.Interfaces) == 0 {
			continue
		}
		alone := true
		for _, i := range c.facts.Interfaces {
			holds := slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Contains(to) })
			alone = alone && (holds || !z.HasInterface(i.Name))
		}
		if alone {
			return true
		}
	}
	return false
}

// publishedForm is a rule as it would be in forward.
func publishedForm(r *policy.Rule) string {
	action, rest, _ := strings.Cut(r.Text, " ")
	return action + " published " + rest
}

// otherFirewalls finds firewalls of other tools that start with the host.
func (c *checker) otherFirewalls() {
	pos := policy.Pos{File: c.policy.File, Line: 1, Column: 1}
	for _, hook := range []policy.Hook{policy.Input, policy.Forward, policy.Output} {
		if s := c.section(hook); s != nil {
			pos = s.Pos
			break
		}
	}
	for _, f := range c.facts.Firewalls {
		what := "loads rules of its own, which may close what this policy opens"
		if f.Flushes {
			what = "flushes all rules, those of this policy too"
		}
		c.report(OtherFirewall, Warning, pos, "disable it: "+f.Disable, "%s starts at every boot and %s", f.Unit, what)
	}
}
