package peers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// FromPolicy says what a policy means.
func FromPolicy(r *resolve.Resolved) Meaning {
	c := &reader{Resolved: r}
	c.out.InvalidAllow = r.Policy.Tracking.InvalidAllow
	c.out.Forwards = r.Policy.Forward != nil || len(r.Policy.NAT) > 0 || r.Facts.Forwarding4 || r.Facts.Forwarding6
	c.out.Accelerated = r.Policy.Forward != nil && r.Policy.Forward.Accelerate
	for _, i := range r.Facts.Interfaces {
		if i.Name != "lo" {
			c.out.Interfaces = append(c.out.Interfaces, i.Name)
		}
	}
	c.bans()
	for i := range r.Policy.Tracking.Bypass {
		c.bypass(&r.Policy.Tracking.Bypass[i])
	}
	c.out.Input = c.section(r.Policy.Input)
	c.out.Output = c.section(r.Policy.Output)
	c.out.Forward = c.section(r.Policy.Forward)
	c.answers()
	for _, n := range r.Policy.NAT {
		c.nat(n)
	}
	return c.out
}

type reader struct {
	*resolve.Resolved
	out Meaning
}

func (c *reader) refuse(text, reason string, args ...any) {
	c.out.Unsaid = append(c.out.Unsaid, Refusal{text, fmt.Sprintf(reason, args...)})
}

func (c *reader) bans() {
	var banned, never addrset.Set
	for i := range c.Policy.Ban {
		banned = banned.Union(c.addresses(&c.Policy.Ban[i]))
		for _, item := range c.Policy.Ban[i].Items {
			if set := c.Sets[item.Name]; set != nil && set.Counters {
				c.out.Counted = c.out.Counted.Union(set.Addresses)
			}
		}
	}
	for i := range c.Policy.NeverBan {
		never = never.Union(c.addresses(&c.Policy.NeverBan[i]))
	}
	var own addrset.Builder
	own.AddSet(policy.NeverBanned)
	for _, p := range c.Facts.Local {
		own.AddPrefix(p.Masked())
	}
	c.out.Spared = never.Union(own.Set())
	c.out.Banned = banned.Difference(c.out.Spared)
}

// addresses of a WHO without zones that ask for interfaces.
func (c *reader) addresses(w *policy.Who) addrset.Set {
	var b addrset.Builder
	for _, item := range w.Items {
		switch zone, set := c.Zones[item.Name], c.Sets[item.Name]; {
		case item.Name == "":
			b.AddRange(item.Literal)
		case zone != nil:
			b.AddSet(zone.Networks)
		case set != nil:
			b.AddSet(set.Addresses)
		}
	}
	return b.Set()
}

// side is one alternative of a WHO.
type side struct {
	interfaces []string
	addresses  *Addresses
}

// sides are the alternatives of a WHO: all addresses together, and each zone with
// interfaces.
func (c *reader) sides(text string, w *policy.Who) []side {
	if w == nil {
		return []side{{}}
	}
	plain := policy.Who{Not: w.Not}
	var names []string
	var out []side
	for _, item := range w.Items {
		zone := c.Zones[item.Name]
		if zone == nil || len(zone.Interfaces) == 0 {
			plain.Items = append(plain.Items, item)
			if item.Name != "" {
				names = append(names, item.Name)
			}
			continue
		}
		if w.Not {
			c.refuse(text, "the opposite of a zone with interfaces")
			return nil
		}
		s := side{interfaces: zone.Patterns()}
		if zone.HasNetworks {
			s.addresses = &Addresses{Name: zone.Name, Set: zone.Networks}
		}
		out = append(out, s)
	}
	if len(plain.Items) > 0 {
		a := &Addresses{Set: c.addresses(&plain), Not: w.Not}
		if len(names) == len(plain.Items) {
			a.Name = strings.Join(names, "+")
		}
		out = append(out, side{addresses: a})
	}
	return out
}

func (c *reader) section(s *policy.Section) *Section {
	if s == nil {
		return nil
	}
	out := &Section{Default: s.Default, DefaultLog: s.DefaultLog}
	for _, r := range s.Rules {
		out.Rules = append(out.Rules, c.rule(r)...)
	}
	return out
}

func (c *reader) rule(r *policy.Rule) []Rule {
	rule := Rule{Text: r.Text, Action: r.Action, Ways: waysOf(r.Services), Family: r.Family, Limit: r.Limit, Max: r.Max, Log: r.Log, Published: r.Published}
	if !r.Until.IsZero() {
		c.refuse(r.Text, "an end in time")
	}
	if r.Limit != nil && r.Limit.Widen {
		c.refuse(r.Text, "a ban that widens")
	}
	for _, u := range r.Users {
		rule.Users = append(rule.Users, c.Users[u.Text])
	}
	in, out := c.interfaces(r.In), c.interfaces(r.Out)
	var rules []Rule
	for _, from := range c.sides(r.Text, r.From) {
		for _, to := range c.sides(r.Text, r.To) {
			one := rule
			one.From, one.To = from.addresses, to.addresses
			var possible [2]bool
			one.In, possible[0] = both(in, from.interfaces)
			one.Out, possible[1] = both(out, to.interfaces)
			if possible[0] && possible[1] {
				rules = append(rules, one)
			}
		}
	}
	if len(rules) > 1 && (rule.Limit != nil || rule.Max != nil) {
		c.refuse(r.Text, "one limit over several zones")
	}
	return rules
}

func (c *reader) interfaces(zone *policy.Word) []string {
	if zone == nil {
		return nil
	}
	return c.Zones[zone.Text].Patterns()
}

// both are the interfaces that are in two lists, of which an empty one is all;
// false means none.
func both(a, b []string) ([]string, bool) {
	switch {
	case len(a) == 0:
		return b, true
	case len(b) == 0:
		return a, true
	}
	var out []string
	for _, x := range a {
		for _, y := range b {
			switch {
			case resolve.MatchInterface(y, strings.TrimSuffix(x, "*")):
				out = append(out, x)
			case resolve.MatchInterface(x, strings.TrimSuffix(y, "*")):
				out = append(out, y)
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out, len(out) > 0
}

// waysOf are the ways of services, those of one protocol merged.
func waysOf(services []policy.ServiceRef) []Way {
	if len(services) == 0 {
		return []Way{{}}
	}
	var out []Way
	add := func(protocol uint8, ports []policy.PortRange, types ...uint8) {
		for i := range out {
			w := &out[i]
			if w.Protocol != protocol {
				continue
			}
			if len(w.Ports)+len(w.Types) == 0 || len(ports)+len(types) == 0 {
				w.Ports, w.Types = nil, nil // all of the protocol
				return
			}
			w.Ports, w.Types = append(w.Ports, ports...), append(w.Types, types...)
			return
		}
		out = append(out, Way{protocol, slices.Clone(ports), types})
	}
	for _, s := range services {
		for _, m := range s.Matches {
			switch {
			case m.Any:
				return []Way{{}}
			case m.Protocol == packet.ICMP && m.ICMP == nil:
				add(packet.ICMP, nil)
				add(packet.ICMPv6, nil)
			case m.Protocol == packet.ICMP:
				if m.ICMP.V4 >= 0 {
					add(packet.ICMP, nil, uint8(m.ICMP.V4))
				}
				if m.ICMP.V6 >= 0 {
					add(packet.ICMPv6, nil, uint8(m.ICMP.V6))
				}
			default:
				add(m.Protocol, m.Ports)
			}
		}
	}
	return out
}

func (c *reader) bypass(b *policy.Bypass) {
	text := "bypass"
	for i, s := range b.Services {
		text += map[bool]string{true: " ", false: ", "}[i == 0] + s.Text
	}
	out := Bypass{Text: text, Ways: waysOf(b.Services)}
	if b.To == nil {
		c.out.Bypass = append(c.out.Bypass, out)
		return
	}
	plain := policy.Who{}
	for _, item := range b.To.Items {
		if s := c.Sets[item.Name]; s != nil && s.IsEndpoints() {
			one := Bypass{Text: text + " to " + item.Name}
			for _, e := range s.Endpoints {
				if offered(out.Ways, e) {
					one.Endpoints = append(one.Endpoints, e)
				}
			}
			c.out.Bypass = append(c.out.Bypass, one)
			continue
		}
		plain.Items = append(plain.Items, item)
	}
	if len(plain.Items) > 0 {
		out.To = &Addresses{Set: c.addresses(&plain)}
		c.out.Bypass = append(c.out.Bypass, out)
	}
}

// offered says whether an endpoint is of the services that are bypassed.
func offered(ways []Way, e policy.Endpoint) bool {
	return slices.ContainsFunc(ways, func(w Way) bool {
		return w.Protocol == e.Protocol && slices.ContainsFunc(w.Ports, func(p policy.PortRange) bool { return p.From <= e.Port && e.Port <= p.To })
	})
}

// answers puts in front of the rules of output what bypassed services send back:
// it is untracked, so nothing else lets it out.
func (c *reader) answers() {
	if c.out.Output == nil || c.out.Output.Default == policy.Allow || len(c.out.Bypass) == 0 {
		return
	}
	asked := []Rule{{Text: "bypassed services", Action: policy.Allow}}
	for _, b := range c.out.Bypass {
		asked[0].Ways = append(asked[0].Ways, b.Ways...)
		for _, e := range b.Endpoints {
			asked[0].Ways = append(asked[0].Ways, Way{Protocol: e.Protocol, Ports: []policy.PortRange{{From: e.Port, To: e.Port}}})
		}
	}
	bypassed := asked[0].Ways
	if c.out.Input != nil {
		var rules []Rule
		for _, r := range c.out.Input.Rules {
			r.Ways = slices.DeleteFunc(slices.Clone(r.Ways), func(w Way) bool { return !meets(w, bypassed) })
			if len(r.Ways) > 0 {
				rules = append(rules, r)
			}
		}
		if c.out.Input.Default == policy.Allow {
			rules = append(rules, asked...)
		}
		asked = rules
	}
	var out []Rule
	for _, r := range asked {
		if r.Action == policy.Reject {
			r.Action = policy.Drop
		}
		r.From, r.To, r.In, r.Out, r.Answers = r.To, r.From, r.Out, r.In, true
		r.Limit, r.Max, r.Log, r.Users = nil, nil, nil, nil
		out = append(out, r)
	}
	c.out.Output.Rules = append(out, c.out.Output.Rules...)
}

// meets says whether a way with ports has one in common with others.
func meets(w Way, with []Way) bool {
	return slices.ContainsFunc(with, func(o Way) bool {
		return w.Protocol == o.Protocol && slices.ContainsFunc(w.Ports, func(a policy.PortRange) bool {
			return slices.ContainsFunc(o.Ports, func(b policy.PortRange) bool { return a.From <= b.To && b.From <= a.To })
		})
	})
}

func (c *reader) nat(n *policy.NAT) {
	out := NAT{Text: n.Text, Kind: n.Kind, Family: n.Family, Out: c.interfaces(n.Out), In: c.interfaces(n.In), Stateless: n.Stateless}
	switch n.Kind {
	case policy.Masquerade:
		if n.As != nil {
			out.As = n.As.Range.From
		}
		for _, s := range c.sides(n.Text, n.From) {
			one := out
			one.From, one.FromIn = s.addresses, s.interfaces
			c.out.NAT = append(c.out.NAT, one)
		}
		return
	case policy.Redirect:
		for _, r := range n.On {
			out.On = out.On.Union(addrset.Of(r.Range))
		}
		if len(n.On) == 0 {
			out.On = c.Zones[n.In.Text].Own
		}
		if n.Target.Address.IsValid() {
			out.Target = netip.AddrPortFrom(n.Target.Address.From, n.Target.Port)
		} else {
			out.Target = netip.AddrPortFrom(netip.Addr{}, n.Target.Port)
		}
		for _, w := range waysOf([]policy.ServiceRef{*n.Service}) {
			one := out
			one.Way = w
			c.out.NAT = append(c.out.NAT, one)
		}
		return
	case policy.Map:
		out.Outside, _ = n.Outside.Range.Prefix()
		out.Inside, _ = n.Inside.Range.Prefix()
	}
	c.out.NAT = append(c.out.NAT, out)
}
