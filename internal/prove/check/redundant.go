package check

import "sluice/internal/language/policy"

// redundantRules finds rules without which every packet has the same fate: what
// comes to them is decided the same way by the rules below, or by the default.
// Limits, bounds and logs are effects of their own, and lists change, so rules
// that have them say nothing here.
func (c *checker) redundantRules() {
	for _, s := range c.sections() {
		for i, st := range c.standings(s) {
			if !st.own || !st.known || len(st.left) == 0 || !plain(st.rule) || c.mirrors(s.Hook, st) {
				continue
			}
			by, same := c.sameBelow(s, i)
			if !same {
				continue
			}
			if st.rule.Published {
				if elsewhere, ok := c.sameElsewhere(s.Hook, st.rule); !ok {
					continue
				} else if by == nil {
					by = elsewhere
				}
			}
			c.redundantRule(s, st, by)
		}
	}
}

func (c *checker) redundantRule(s *policy.Section, st *standing, by *policy.Rule) {
	r := st.rule
	how := "by the default"
	if by != nil {
		how = "by \"" + by.Text + "\" on " + place(by.Pos, r.Pos)
	}
	f := c.report(RedundantRule, Remark, r.Pos, "remove it; its packets are then counted there",
		"this rule changes nothing: its packets are %s below anyway, %s", r.Action.Done(), how)
	if by != nil {
		f.Related = append(f.Related, Related{by.Pos, by.Text})
	}
	c.shows(f, s.Hook, st.left, r)
}

// plain says that a rule decides and does nothing else.
func plain(r *policy.Rule) bool {
	return ends(r) && r.Log == nil
}

// mirrors says whether a rule also stands for answers of untracked traffic.
func (c *checker) mirrors(hook policy.Hook, st *standing) bool {
	switch hook {
	case policy.Input:
		return overlap(st.packets, c.untracked())
	case policy.Forward:
		return overlap(st.packets, c.mapped())
	}
	return false
}

// sameBelow says whether the rules below one, and the default, do the same with
// what comes to it; by is the first of them, nil the default.
func (c *checker) sameBelow(s *policy.Section, at int) (by *policy.Rule, same bool) {
	all := c.standings(s)
	r := all[at].rule
	packets, may, whole := all[at].rest, c.effort.question(), hullOf(all[at].rest)
	var ok bool
	for i, e := range all {
		if i == at || e.rule.Action == policy.ClampMSS || !e.hull.meets(&whole) {
			continue
		}
		unsteady := c.unsteady(e.rule.From) || c.unsteady(e.rule.To)
		if i < at && (!ends(e.rule) || unsteady) {
			continue
		}
		if !c.effort.compare(len(packets)*len(e.packets), &may) {
			return nil, false
		}
		if !overlap(packets, e.packets) {
			continue
		}
		if i > at && (!plain(e.rule) || e.rule.Action != r.Action || unsteady) {
			return nil, false
		}
		if i > at && by == nil {
			by = e.rule
		}
		if packets, ok = c.effort.cut(packets, e.packets, &may); !ok {
			return nil, false
		}
	}
	if len(packets) > 0 && (s.Default != r.Action || s.DefaultLog != nil) {
		return nil, false
	}
	return by, true
}

// sameElsewhere asks the same of a published rule in the other section.
func (c *checker) sameElsewhere(hook policy.Hook, r *policy.Rule) (by *policy.Rule, same bool) {
	s := c.otherSide(hook)
	if s == nil {
		return nil, true
	}
	for i, st := range c.standings(s) {
		if st.rule == r {
			if !st.known {
				return nil, false
			}
			return c.sameBelow(s, i)
		}
	}
	return nil, false
}
