package check

import (
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
)

func (c *checker) spared() addrset.Set {
	out := policy.NeverBanned
	for i := range c.policy.NeverBan {
		out = out.Union(c.whoAddresses(&c.policy.NeverBan[i]))
	}
	return out
}

// banned is the packets of a hook that a ban drops before any rule. Lists that
// are downloaded are left out, since they change, and so are the host's own
// addresses.
func (c *checker) banned(hook policy.Hook) []box {
	var all addrset.Set
	for i := range c.policy.Ban {
		if !c.changing(&c.policy.Ban[i]) {
			all = all.Union(c.whoAddresses(&c.policy.Ban[i]))
		}
	}
	all = all.Difference(c.spared()).Difference(c.own)
	if all.IsEmpty() {
		return nil
	}
	var out []box
	for _, family := range []int{4, 6} {
		u := c.universe(hook, family)
		for _, side := range []int{source, destination} {
			if hook == policy.Output && side == source {
				continue
			}
			b := u
			b.addresses[side] = b.addresses[side].Intersect(all)
			if !b.empty() {
				out = append(out, b)
			}
		}
	}
	return out
}

func (c *checker) bannedRule(r *policy.Rule) {
	hint := "bans are evaluated before any rule; never-ban exempts addresses"
	c.report(BannedRule, Error, r.Pos, hint, "this rule can never match: all of its packets are banned")
}

// bans finds bans that hit the host itself, its administrators or its name
// servers, and bans that never-ban undoes.
func (c *checker) bans() {
	var never addrset.Set
	for i := range c.policy.NeverBan {
		never = never.Union(c.whoAddresses(&c.policy.NeverBan[i]))
	}
	for _, w := range c.policy.Ban {
		for _, item := range w.Items {
			addresses := c.itemAddresses(item)
			if addresses.IsEmpty() {
				continue
			}
			c.neverBanOverlap(item, addresses, never)
			c.banOfHost(item, addresses.Difference(never))
		}
	}
}

func (c *checker) neverBanOverlap(item policy.WhoItem, addresses, never addrset.Set) {
	both := addresses.Intersect(never)
	if both.IsEmpty() {
		return
	}
	var f *Finding
	if never.ContainsSet(addresses) {
		f = c.report(NeverBanned, Warning, item.Pos, "", "the ban of %q has no effect: never-ban covers all of it", itemText(item))
	} else {
		f = c.report(NeverBanned, Remark, item.Pos, "", "never-ban exempts %s from the ban of %q", few(both), itemText(item))
	}
	for _, w := range c.policy.NeverBan {
		for _, i := range w.Items {
			if c.itemAddresses(i).Overlaps(addresses) {
				f.Related = append(f.Related, Related{i.Pos, "never-ban: " + itemText(i)})
			}
		}
	}
}

func (c *checker) banOfHost(item policy.WhoItem, addresses addrset.Set) {
	if !c.facts.Known {
		return
	}
	if own := c.hostAddresses().Intersect(addresses); !own.IsEmpty() {
		c.report(BanOwn, Warning, item.Pos, "remove it from the list; the host's own addresses are never banned",
			"the ban of %q covers this host's own address %s", itemText(item), few(own))
	}
	var peers addrset.Builder
	for _, p := range c.facts.SSHClients {
		if !p.Unproved {
			peers.AddAddr(p.Remote.Addr())
		}
	}
	hit := peers.Set().Difference(policy.NeverBanned).Difference(c.own).Intersect(addresses)
	if !hit.IsEmpty() {
		c.report(BanManagement, Warning, item.Pos, "add it to never-ban",
			"the ban of %q covers %s, which is logged in over ssh now", itemText(item), few(hit))
	}
	c.banOfTunnels(item, addresses)
	var resolvers addrset.Builder
	for _, a := range c.facts.Resolvers {
		resolvers.AddAddr(a)
	}
	hit = resolvers.Set().Difference(policy.NeverBanned).Difference(c.own).Intersect(addresses)
	if !hit.IsEmpty() {
		c.report(BanResolver, Warning, item.Pos, "add it to never-ban, or use another name server",
			"the ban of %q covers %s, a name server of this host: its answers would be dropped", itemText(item), few(hit))
	}
}

// banOfTunnels finds bans of those whose packets carry somebody who is logged in.
func (c *checker) banOfTunnels(item policy.WhoItem, addresses addrset.Set) {
	told := map[netip.Addr]bool{}
	for _, o := range c.facts.OuterFlows {
		a := o.Remote.Addr()
		if !a.IsValid() || told[a] || !addresses.Contains(a) || policy.NeverBanned.Contains(a) || c.own.Contains(a) {
			continue
		}
		told[a] = true
		c.report(BanManagement, Warning, item.Pos, "add it to never-ban",
			"the ban of %q covers %s, the other end of the tunnel %s, through which %s is logged in now", itemText(item), a, o.Tunnel, o.Peer)
	}
}

// few shows a set in a message.
func few(s addrset.Set) string {
	const most = 3
	text, n := "", 0
	for r := range s.Each() {
		if n++; n > most {
			return text + " and more"
		}
		if n > 1 {
			text += ", "
		}
		text += r.String()
	}
	return text
}
