package check

import (
	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// ownAddresses is what packets to a host can have as destination: its
// addresses, those that it answers for by a local route, loopback, link-local,
// multicast and broadcast. Of an unknown host it is empty.
func ownAddresses(f host.Facts) addrset.Set {
	if !f.Known {
		return addrset.Set{}
	}
	own, broadcasts := f.Addresses()
	return own.Union(broadcasts).Union(policy.NeverBanned)
}

// hostAddresses is the addresses of the host's interfaces but loopback and
// link-local ones.
func (c *checker) hostAddresses() addrset.Set {
	var b addrset.Builder
	for _, i := range c.facts.Interfaces {
		for _, p := range i.Addresses {
			b.AddAddr(p.Addr())
		}
	}
	return b.Set().Difference(policy.NeverBanned)
}

// localAddresses finds sides that name an address of another host where only
// this host's occur.
func (c *checker) localAddresses() {
	if !c.facts.Known {
		return
	}
	for _, s := range c.sections() {
		for _, r := range s.Rules {
			switch {
			case s.Hook == policy.Input && !r.Published:
				c.mustBeOwn(r.To, "to this host", "forward is for packets that go through this host")
			case s.Hook == policy.Output:
				c.mustBeOwn(r.From, "from this host", "forward is for packets that go through this host")
			}
		}
	}
	for _, b := range c.policy.Tracking.Bypass {
		c.mustBeOwn(b.To, "to this host", "a bypass is for services of this host")
	}
}

func (c *checker) mustBeOwn(w *policy.Who, packets, hint string) {
	if w == nil || w.Not {
		return
	}
	addresses := c.whoAddresses(w)
	if addresses.IsEmpty() || c.hasInterfaces(w) || addresses.Overlaps(c.own) {
		return
	}
	severity := Error
	if c.facts.NonLocalBind {
		// An address that moves between hosts may be elsewhere at the moment.
		severity = Warning
	}
	c.report(ForeignAddress, severity, w.Pos, hint, "no packet %s has an address of %s: it does not belong to the host", packets, few(addresses))
}

// hasInterfaces says whether a side names a zone with interfaces.
func (c *checker) hasInterfaces(w *policy.Who) bool {
	for _, item := range w.Items {
		if z := c.Zones[item.Name]; z != nil && len(z.Interfaces) > 0 {
			return true
		}
	}
	return false
}
