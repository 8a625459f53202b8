package check

import (
	"fmt"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// Ports that a kernel takes for its own connections unless it is told other
// ones (net.ipv4.ip_local_port_range).
const (
	defaultEphemeralFrom = 32768
	defaultEphemeralTo   = 60999
)

// bypasses finds services without tracking that need it.
func (c *checker) bypasses() {
	for i := range c.policy.Tracking.Bypass {
		b := &c.policy.Tracking.Bypass[i]
		c.bypassEphemeral(b)
		for _, n := range c.policy.NAT {
			c.bypassNAT(b, n)
		}
		c.bypassPublished(b)
	}
	c.bypassForeign()
}

// bypassForeign finds another tool's masquerade, which does not keep out of the ports
// that bypass tracking as Sluice's own does.
func (c *checker) bypassForeign() {
	for _, chain := range c.facts.ForeignChains {
		if len(c.policy.Tracking.Bypass) > 0 && chain.Type == "nat" && chain.Hook == "postrouting" && chain.Rewrites {
			c.report(BypassNAT, Remark, c.policy.Tracking.Bypass[0].Pos, "have clients use other source ports, or masquerade in this policy",
				"another tool rewrites sources (%s, chain %s) and may keep a source port that bypasses tracking here: clients behind it that send from such a port get no answers",
				chain.Table, chain.Name)
			return
		}
	}
}

// local is the packets to a bypassed service, of one family.
func (c *checker) local(b *policy.Bypass, family int) []box {
	u := c.universe(policy.Input, family)
	u.numbers[service] = servicesOf(b.Services, family)
	if u.empty() {
		return nil
	}
	return c.side(u, b.To, destination, out, service)
}

func (c *checker) untracked() []box {
	var all []box
	for i := range c.policy.Tracking.Bypass {
		for _, family := range []int{4, 6} {
			all = append(all, c.local(&c.policy.Tracking.Bypass[i], family)...)
		}
	}
	return all
}

func (c *checker) bypassEphemeral(b *policy.Bypass) {
	from, to, known := uint64(c.facts.EphemeralFrom), uint64(c.facts.EphemeralTo), true
	if to == 0 {
		from, to, known = defaultEphemeralFrom, defaultEphemeralTo, false
	}
	for protocol, ports := range portsOf(servicesOf(b.Services, 4)) {
		if protocol != packet.TCP && protocol != packet.UDP {
			continue
		}
		for _, p := range ports {
			first, last := max(from, uint64(p.From)), min(to, uint64(p.To))
			if first > last {
				continue
			}
			text := fmt.Sprintf("port %d is", first)
			if last > first {
				text = fmt.Sprintf("ports %d-%d are", first, last)
			}
			severity, whose := Error, "this host's"
			if !known {
				severity, whose = Warning, "the kernel's usual"
			}
			c.report(BypassEphemeral, severity, b.Pos,
				"narrow the service's ports, or move net.ipv4.ip_local_port_range away from them",
				"%s among %s ports for its own connections (%d-%d): their answers would come in untracked, belong to no connection, and be refused",
				text, whose, from, to)
			return
		}
	}
}

func (c *checker) bypassNAT(b *policy.Bypass, n *policy.NAT) {
	switch {
	case n.Kind == policy.Redirect:
		c.bypassRedirect(b, n)
	case n.Kind == policy.Map && !n.Stateless:
		c.bypassMap(b, n)
	}
}

func (c *checker) bypassRedirect(b *policy.Bypass, n *policy.NAT) {
	for _, family := range familiesOf(n.Family) {
		local := c.local(b, family)
		if local == nil {
			continue
		}
		asked := c.universe(policy.Input, family)
		asked.numbers[service] = servicesOf([]policy.ServiceRef{*n.Service}, family)
		where := c.redirected(n)
		if !where.IsEmpty() {
			asked.addresses[destination] = asked.addresses[destination].Intersect(where)
		}
		known := !where.IsEmpty() || b.To == nil
		if known && !asked.empty() && overlap(local, []box{asked}) {
			c.bypassConflict(b, n, "it redirects packets that bypass tracking, and untracked packets are not rewritten")
			return
		}
		if answers, ok := c.redirectTarget(n, family); ok && overlap(local, []box{answers}) {
			c.bypassConflict(b, n, "it redirects to a service of this host that bypasses tracking, so answers would leave with the wrong port")
			return
		}
	}
}

// redirected is the addresses that a redirect is about; empty where the host
// is not known.
func (c *checker) redirected(n *policy.NAT) addrset.Set {
	var out addrset.Set
	for _, r := range n.On {
		out = out.Union(addrset.Of(r.Range))
	}
	if len(n.On) > 0 || n.In == nil || c.Zones[n.In.Text] == nil {
		return out
	}
	return c.Zones[n.In.Text].Own
}

// redirectTarget is the packets behind a redirect that leads to this host.
func (c *checker) redirectTarget(n *policy.NAT, family int) (box, bool) {
	b := c.universe(policy.Input, family)
	services := servicesOf([]policy.ServiceRef{*n.Service}, family)
	if to := n.Target.Address; to.IsValid() {
		here := addrset.Of(to)
		if !c.own.Overlaps(here) {
			return box{}, false
		}
		b.addresses[destination] = b.addresses[destination].Intersect(here)
	}
	if n.Target.Port != 0 {
		var ports []span
		for protocol := range portsOf(services) {
			ports = append(ports, wire(protocol, n.Target.Port, n.Target.Port))
		}
		services = numbersOf(ports...)
	}
	b.numbers[service] = services
	return b, !b.empty()
}

// bypassMap: what comes in for a mapped address bypasses tracking only where
// that address is this host's too.
func (c *checker) bypassMap(b *policy.Bypass, n *policy.NAT) {
	outside := addrset.Of(n.Outside.Range)
	if b.To == nil {
		if outside = outside.Intersect(c.own); outside.IsEmpty() {
			return
		}
	}
	for _, family := range []int{4, 6} {
		asked := c.universe(policy.Input, family)
		asked.addresses[destination] = asked.addresses[destination].Intersect(outside)
		if !asked.empty() && overlap(c.local(b, family), []box{asked}) {
			c.bypassConflict(b, n, "it maps packets that bypass tracking, and untracked packets are not rewritten")
			return
		}
	}
}

func (c *checker) bypassConflict(b *policy.Bypass, n *policy.NAT, why string) {
	f := c.report(BypassNAT, Error, b.Pos, "remove the service from bypass, or give the bypass an address of its own: SERVICE to ADDRESS",
		"bypass of %q conflicts with %q on %s: %s", servicesText(b.Services), n.Text, place(n.Pos, b.Pos), why)
	f.Related = append(f.Related, Related{n.Pos, n.Text})
}

// bypassPublished: a container's port that another tool publishes by DNAT.
func (c *checker) bypassPublished(b *policy.Bypass) {
	for _, p := range c.facts.Published {
		if p.Port == 0 {
			continue // a whole address; its packets are not this host's
		}
		for _, family := range []int{4, 6} {
			if a := p.To.Addr(); a.IsValid() && (a.Is4() != (family == 4)) {
				continue
			}
			asked := c.universe(policy.Input, family)
			protocol, ok := packet.PortProtocol(p.Protocol)
			if !ok {
				continue
			}
			asked.numbers[service] = numbers{wire(protocol, p.Port, p.Port)}
			if p.Address.IsValid() {
				asked.addresses[destination] = asked.addresses[destination].Intersect(addrset.Of(addrset.Range{From: p.Address, To: p.Address}))
			}
			if !asked.empty() && overlap(c.local(b, family), []box{asked}) {
				c.report(BypassNAT, Error, b.Pos, "remove the service from bypass, or give the bypass an address of its own: SERVICE to ADDRESS",
					"bypass of %q conflicts with a port that another tool publishes (%s): untracked packets are not rewritten, so nobody would reach it any more",
					servicesText(b.Services), p)
				return
			}
		}
	}
}

func servicesText(refs []policy.ServiceRef) string {
	text := ""
	for i, r := range refs {
		if i > 0 {
			text += ", "
		}
		text += r.Text
	}
	return text
}

// untrackedRules finds rules of input that count connections, or new flows, of
// services that bypass tracking.
func (c *checker) untrackedRules() {
	untracked := c.untracked()
	if c.policy.Input == nil || len(untracked) == 0 {
		return
	}
	for _, r := range c.policy.Input.Rules {
		if r.Max == nil && r.Limit == nil || r.Published || !overlap(c.packets(policy.Input, r), untracked) {
			continue
		}
		if r.Max != nil {
			c.report(BypassConnections, Error, r.Max.Pos, "remove the service from bypass, or use a limit instead",
				"this counts connections that bypass tracking: the kernel knows none of them, so nothing is limited")
		}
		if r.Limit != nil {
			c.report(BypassLimit, Warning, r.Limit.Pos, "remove the service from bypass, or choose the limit for packets",
				"this limit counts every packet instead of new flows, because the service bypasses tracking")
		}
	}
}

// masquerades remarks on IPv6 that is masqueraded without being named.
func (c *checker) masquerades() {
	for _, n := range c.policy.NAT {
		if n.Kind == policy.Masquerade && n.Family == 0 && n.As == nil && (n.From == nil || c.mayBeIPv6(n.From)) {
			c.report(MasqueradeIPv6, Remark, n.Pos, "write \"ipv4\" at its end if IPv6 is routed",
				"this masquerade covers IPv6 too")
		}
	}
}

func (c *checker) mayBeIPv6(w *policy.Who) bool {
	if w.Not {
		return true
	}
	for _, item := range w.Items {
		if z := c.Zones[item.Name]; z != nil && !z.HasNetworks {
			return true
		}
		if c.itemAddresses(item).Has6() {
			return true
		}
	}
	return false
}
