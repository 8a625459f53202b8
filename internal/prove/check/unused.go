package check

import (
	"slices"

	"sluice/internal/language/policy"
)

// unusedNames finds sets, zones and services that no part of the policy uses.
func (c *checker) unusedNames() {
	if c.policy.Fleet != nil {
		return // parts of other hosts may use them
	}
	used := c.usedNames()
	for _, s := range c.policy.Sets {
		if !used[s.Name] {
			c.report(UnusedName, Remark, s.Pos, "remove it", "set %q is not used", s.Name)
		}
	}
	for _, z := range c.policy.Zones {
		if !used[z.Name] && !c.zonesMatter() {
			c.report(UnusedName, Remark, z.Pos, "remove it", "zone %q is not used", z.Name)
		}
	}
	services := c.usedServices()
	for _, s := range c.policy.Services {
		if !services[s.Name] && !c.inOtherService(s) {
			c.report(UnusedName, Remark, s.Pos, "remove it", "service %q is not used", s.Name)
		}
	}
}

// zonesMatter says whether zones have a sense without being named: accelerated
// flows are those of their interfaces, and the hairpin of a redirect looks for
// the neighbours of its target in their networks.
func (c *checker) zonesMatter() bool {
	return c.policy.Forward != nil && c.policy.Forward.Accelerate ||
		slices.ContainsFunc(c.policy.NAT, func(n *policy.NAT) bool { return n.Kind == policy.Redirect })
}

// usedNames is the sets and zones that anything is decided by, and the sets that
// those are made of.
func (c *checker) usedNames() map[string]bool {
	used := map[string]bool{}
	var use func(name string)
	use = func(name string) {
		if used[name] {
			return
		}
		used[name] = true
		if s := c.policy.Set(name); s != nil {
			for _, w := range slices.Concat(s.Union, s.Except) {
				use(w.Text)
			}
		}
	}
	who := func(w *policy.Who) {
		if w != nil {
			for _, item := range w.Items {
				use(item.Name)
			}
		}
	}
	zone := func(w *policy.Word) {
		if w != nil {
			use(w.Text)
		}
	}
	for _, r := range c.ruleLines() {
		who(r.From)
		who(r.To)
		zone(r.In)
		zone(r.Out)
	}
	excepted := []policy.Who{}
	if b := c.policy.Exceptions; b != nil {
		excepted = b.Who
	}
	for _, lines := range [][]policy.Who{c.policy.Ban, c.policy.NeverBan, excepted} {
		for i := range lines {
			who(&lines[i])
		}
	}
	for _, b := range c.policy.Tracking.Bypass {
		who(b.To)
	}
	for _, n := range c.policy.NAT {
		who(n.From)
		zone(n.In)
		zone(n.Out)
	}
	return used
}

// ruleLines is the rules of all sections, and those that are expected.
func (c *checker) ruleLines() (out []*policy.Rule) {
	for _, s := range c.sections() {
		out = append(out, s.Rules...)
	}
	for _, x := range c.policy.Expect {
		out = append(out, &x.Rule)
	}
	return out
}

func (c *checker) usedServices() map[string]bool {
	used := map[string]bool{}
	add := func(refs []policy.ServiceRef) {
		for _, r := range refs {
			used[r.Text] = true
		}
	}
	for _, r := range c.ruleLines() {
		add(r.Services)
	}
	for _, b := range c.policy.Tracking.Bypass {
		add(b.Services)
	}
	for _, n := range c.policy.NAT {
		if n.Service != nil {
			add([]policy.ServiceRef{*n.Service})
		}
	}
	return used
}

// inOtherService says whether another service may be made of this one: what it
// means is all in there, and the names that a service was made of are not kept.
func (c *checker) inOtherService(s *policy.Service) bool {
	mine := policy.ServiceRef{Matches: s.Matches}
	for _, o := range c.policy.Services {
		if o == s {
			continue
		}
		theirs := policy.ServiceRef{Matches: o.Matches}
		held := true
		for _, family := range []int{4, 6} {
			held = held && len(servicesOf([]policy.ServiceRef{mine}, family).minus(servicesOf([]policy.ServiceRef{theirs}, family))) == 0
		}
		if held {
			return true
		}
	}
	return false
}
