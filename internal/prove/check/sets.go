package check

import (
	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
)

// emptySets finds sets without an address. A file or list may well be empty
// today; what is written in the policy itself is not meant to be.
func (c *checker) emptySets() {
	used := c.usedInRules()
	for _, s := range c.policy.Sets {
		set := c.Sets[s.Name]
		if set == nil || set.IsEndpoints() || s.Living || s.Others || s.IsGroup() || !set.Addresses.IsEmpty() {
			continue
		}
		rule, inRule := used[s.Name]
		var f *Finding
		switch {
		case len(s.Except) > 0:
			f = c.report(EmptySet, Warning, s.Pos, "", "set %q has no addresses: its exceptions remove all of them", s.Name)
		case s.URL != nil, s.File != nil:
			severity, what := Remark, "its file is empty"
			if s.URL != nil {
				what = "its list is empty"
			}
			if inRule {
				severity = Warning
			}
			f = c.report(EmptySet, severity, s.Pos, "", "set %q has no addresses: %s", s.Name, what)
		case len(s.Countries)+len(s.Continents) > 0:
			f = c.report(EmptySet, Error, s.Pos, "", "set %q has no addresses: the country data have none for it", s.Name)
			f.Remedy = policy.SeeCountries
		case len(s.Union) > 0:
			severity := Error
			if c.mayBeEmpty(s.Name, 0) {
				severity = Warning
			}
			f = c.report(EmptySet, severity, s.Pos, "", "set %q has no addresses: none of its parts has any", s.Name)
		default:
			f = c.report(EmptySet, Error, s.Pos, "give it addresses, or remove it", "set %q has no addresses", s.Name)
		}
		if inRule {
			f.Related = append(f.Related, Related{rule.Pos, rule.Text})
		}
	}
}

// mayBeEmpty says whether a set is made of a file, a list or an exception.
func (c *checker) mayBeEmpty(name string, depth int) bool {
	s := c.policy.Set(name)
	if s == nil || depth > len(c.policy.Sets) {
		return false
	}
	if s.File != nil || s.URL != nil || s.IsGroup() || len(s.Except) > 0 {
		return true
	}
	for _, w := range s.Union {
		if c.mayBeEmpty(w.Text, depth+1) {
			return true
		}
	}
	return false
}

// usedInRules gives for each set the first rule that names it.
func (c *checker) usedInRules() map[string]*policy.Rule {
	used := map[string]*policy.Rule{}
	for _, s := range c.sections() {
		for _, r := range s.Rules {
			for _, w := range []*policy.Who{r.From, r.To} {
				if w == nil {
					continue
				}
				for _, item := range w.Items {
					if item.Name != "" && used[item.Name] == nil {
						used[item.Name] = r
					}
				}
			}
		}
	}
	return used
}

func (c *checker) namesEmptySet(r *policy.Rule) bool {
	for _, w := range []*policy.Who{r.From, r.To} {
		if w == nil || w.Not || len(w.Items) == 0 {
			continue
		}
		empty := true
		for _, item := range w.Items {
			s := c.Sets[item.Name]
			empty = empty && s != nil && !s.IsEndpoints() && s.Addresses.IsEmpty()
		}
		if empty {
			return true
		}
	}
	return false
}

// families finds rules that close one family and leave the other one open,
// since the set that they name holds addresses of one family only.
func (c *checker) families() {
	for _, s := range c.sections() {
		rules, own := c.ordered(s)
		all := make([]matching, len(rules))
		for i, r := range rules {
			all[i] = c.matching(s.Hook, r)
		}
		for i, r := range rules {
			if i >= own || r.Family != 0 || r.Action == policy.ClampMSS {
				continue
			}
			for _, w := range []*policy.Who{r.From, r.To} {
				c.oneFamily(s, all[i+1:], r, w)
			}
		}
	}
}

func (c *checker) oneFamily(s *policy.Section, later []matching, r *policy.Rule, w *policy.Who) {
	name, missing := c.lackingFamily(w)
	if missing == 0 {
		return
	}
	// Allowing all but a set of one family allows the whole other family.
	if w.Not {
		if r.Action == policy.Allow {
			c.report(OneFamily, Warning, w.Pos, otherFamilyHint(missing),
				"set %q has no IPv%d addresses, so every IPv%d address is \"not %s\" and allowed here", name, missing, missing, name)
		}
		return
	}
	if r.Action == policy.Allow {
		return
	}
	open := *r
	if w == r.From {
		open.From = nil
	} else {
		open.To = nil
	}
	packets := c.packetsOf(s.Hook, &open, missing)
	if !c.someAllowed(s, later, packets) {
		return
	}
	c.report(OneFamily, Warning, w.Pos, otherFamilyHint(missing),
		"set %q has no IPv%d addresses, so over IPv%d this rule refuses nothing of what is allowed below it", name, missing, missing)
}

func otherFamilyHint(missing int) string {
	if missing == 6 {
		return "add the IPv6 addresses to the set, or write \"ipv4\" in the rule if IPv6 should stay open"
	}
	return "add the IPv4 addresses to the set, or write \"ipv6\" in the rule if IPv4 should stay open"
}

// lackingFamily names the set and the family that a side lacks where it is made
// of sets; 0 where both are there, none is, or a literal says what is meant.
func (c *checker) lackingFamily(w *policy.Who) (name string, family int) {
	if w == nil {
		return "", 0
	}
	var all addrset.Set
	for _, item := range w.Items {
		s := c.Sets[item.Name]
		if s == nil || s.IsEndpoints() || s.Expires || s.Others {
			return "", 0
		}
		name = s.Name
		all = all.Union(s.Addresses)
	}
	switch {
	case all.Has4() && !all.Has6():
		return name, 6
	case all.Has6() && !all.Has4():
		return name, 4
	}
	return "", 0
}

// someAllowed says whether the rules that follow, or the default, allow any of
// the packets.
func (c *checker) someAllowed(s *policy.Section, rules []matching, packets []box) bool {
	may, whole := c.effort.question(), hullOf(packets)
	for i := range rules {
		m := &rules[i]
		if !m.hull.meets(&whole) || m.rule.Action == policy.ClampMSS {
			continue
		}
		if m.rule.Action == policy.Allow && overlap(packets, m.packets) {
			return true
		}
		if !ends(m.rule) {
			continue
		}
		rest, ok := c.effort.cut(packets, m.packets, &may)
		if !ok {
			return false
		}
		packets, whole = rest, hullOf(rest)
	}
	return len(packets) > 0 && s.Default == policy.Allow
}

// allAllowed says whether the rules and the default let all of the packets
// through, without a limit or bound.
func (c *checker) allAllowed(s *policy.Section, packets []box) bool {
	rules, _ := c.ordered(s)
	for _, r := range rules {
		if !ends(r) {
			continue
		}
		match := c.packets(s.Hook, r)
		if r.Action != policy.Allow {
			if overlap(packets, match) {
				return false
			}
			continue
		}
		rest, ok := c.effort.minus(packets, match)
		if !ok {
			return true
		}
		packets = rest
	}
	return len(packets) == 0 || s.Default == policy.Allow
}
