package check

import (
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/language/policy"
)

// eachBan gives every part of every ban with the addresses that it drops.
func (c *checker) eachBan(do func(item policy.WhoItem, addresses addrset.Set)) {
	spared := c.spared().Union(c.own)
	for _, w := range c.policy.Ban {
		for _, item := range w.Items {
			if addresses := c.itemAddresses(item).Difference(spared); !addresses.IsEmpty() {
				do(item, addresses)
			}
		}
	}
}

// banNetworks finds bans of whole networks that the host is in, or that a zone
// is, and of the host's routers.
func (c *checker) banNetworks() {
	never := c.spared()
	c.eachBan(func(item policy.WhoItem, addresses addrset.Set) {
		whole := c.itemAddresses(item)
		var hit []string
		for _, i := range c.facts.Interfaces {
			for _, p := range i.Addresses {
				network := addrset.FromPrefixes(p.Masked())
				if p.IsSingleIP() || policy.NeverBanned.ContainsSet(network) || never.Overlaps(network) {
					continue
				}
				if name := p.Masked().String() + " of " + i.Name; whole.ContainsSet(network) && !slices.Contains(hit, name) {
					hit = append(hit, name)
				}
			}
		}
		for _, z := range c.policy.Zones {
			networks := c.Zones[z.Name].Networks
			if !networks.IsEmpty() && !never.Overlaps(networks) && whole.ContainsSet(networks) {
				hit = append(hit, "zone "+quoted(z.Name))
			}
		}
		if len(hit) > 0 {
			c.report(BanNetwork, Warning, item.Pos, "remove it from the ban, or add it to never-ban",
				"the ban of %q contains a network of this host: %s", itemText(item), english.List(hit))
		}
		var routers addrset.Builder
		for _, a := range c.facts.Gateways {
			routers.AddAddr(a)
		}
		if hit := routers.Set().Intersect(addresses); !hit.IsEmpty() {
			c.report(BanRouter, Warning, item.Pos, "add it to never-ban",
				"the ban of %q covers %s, the router of the default route: its ICMP errors would be dropped, and path MTU discovery breaks", itemText(item), few(hit))
		}
	})
}

// banServers finds bans of mirrors and time servers; those of name servers are
// found by check.
func (c *checker) banServers() {
	servers := slices.DeleteFunc(c.asked(), func(a asked) bool { return !slices.Contains(serverRoles, a.role) })
	c.eachBan(func(item policy.WhoItem, addresses addrset.Set) {
		var hit []asked
		for _, a := range servers {
			if addresses.Contains(a.address) {
				hit = append(hit, a)
			}
		}
		if len(hit) == 0 {
			return
		}
		f := c.report(BanServer, Warning, item.Pos, "add it to never-ban, or use another one",
			"the ban of %q covers servers that this host uses, whose answers would be dropped: %s", itemText(item), names(hit))
		b := c.universe(policy.Input, familyOfAddress(hit[0].address))
		b.addresses[source] = single(hit[0].address)
		b.numbers[service] = numbers{wire(hit[0].protocol, 40000, 40000)}
		b.numbers[sourcePort], b.numbers[original] = one(uint64(hit[0].ports[0])), one(notRewritten)
		f.Witness = &Witness{policy.Input, *c.witness(policy.Input, b, "established")}
	})
}

// banCountries remarks on bans of countries: a ban holds for every packet, also
// for answers to what the host asks and for the errors of routers on the way.
func (c *checker) banCountries() {
	c.eachBan(func(item policy.WhoItem, _ addrset.Set) {
		if item.Name == "" || !c.ofCountries(item.Name, 0) {
			return
		}
		c.report(BanCountries, Remark, item.Pos, "write it as a rule of input instead: drop any from "+item.Name,
			"a ban of countries also drops answers from there to this host's requests, and ICMP errors of routers there, which path MTU discovery needs")
	})
}

func (c *checker) ofCountries(name string, depth int) bool {
	s := c.policy.Set(name)
	if s == nil || depth > len(c.policy.Sets) {
		return false
	}
	return len(s.Countries)+len(s.Continents) > 0 ||
		slices.ContainsFunc(s.Union, func(w policy.Word) bool { return c.ofCountries(w.Text, depth+1) })
}

// bypassUnused finds services that bypass tracking and that input refuses, so
// that the bypass does nothing.
func (c *checker) bypassUnused() {
	s := c.policy.Input
	if s == nil {
		return
	}
	for i := range c.policy.Tracking.Bypass {
		b := &c.policy.Tracking.Bypass[i]
		packets := slices.Concat(c.local(b, 4), c.local(b, 6))
		packets, ok := c.effort.minus(packets, c.banned(policy.Input))
		if !ok || len(packets) == 0 {
			continue
		}
		if f := c.fate(s, packets); f.known && !f.allowed {
			finding := c.report(BypassUnused, Remark, b.Pos, "remove it, or allow the service in input", "no input rule allows any packet that bypasses tracking here")
			c.shows(finding, policy.Input, packets, nil)
		}
	}
}
