package check

import "sluice/internal/language/policy"

// standing is a rule at a hook, with what is left of its packets there.
type standing struct {
	matching
	own   bool  // it is in the section itself, else in the other one, as a published rule
	rest  []box // its packets that are not decided before any rule
	left  []box // what the rules above leave of them
	known bool  // else it would have taken too long to tell
}

// standings is the rules that a hook asks, in order. A rule that clamps decides
// nothing and has neither rest nor left.
func (c *checker) standings(s *policy.Section) []*standing {
	if all, done := c.standing[s.Hook]; done {
		return all
	}
	rules, own := c.ordered(s)
	banned := c.banned(s.Hook)
	before := map[int]*decided{4: {}, 6: {}}
	all := make([]*standing, 0, len(rules))
	for i, r := range rules {
		st := &standing{matching: c.matching(s.Hook, r), own: i < own}
		all = append(all, st)
		if r.Action == policy.ClampMSS {
			continue
		}
		if st.rest, st.known = c.minusNeeded(st.packets); st.known {
			st.rest, st.known = c.effort.minus(st.rest, banned)
		}
		st.left = st.rest
		for _, family := range []int{4, 6} {
			if st.known {
				st.left, st.known = before[family].minus(st.left, &c.effort)
			}
			if ends(r) {
				u := c.universe(s.Hook, family)
				before[family].add(both(st.packets, []box{u}), &u)
			}
		}
	}
	c.standing[s.Hook] = all
	return all
}

// unsteady says whether the addresses of a side may change without the policy:
// a list that is downloaded, country data, or what commands add to it.
func (c *checker) unsteady(w *policy.Who) bool {
	if w == nil {
		return false
	}
	for _, item := range w.Items {
		if item.Name != "" && c.unsteadySet(item.Name, 0) {
			return true
		}
	}
	return false
}

// unsteadySet follows unions and exceptions; policy has refused cycles.
func (c *checker) unsteadySet(name string, depth int) bool {
	s := c.policy.Set(name)
	if s == nil || depth > len(c.policy.Sets) {
		return false
	}
	if s.URL != nil || s.Living || s.Others || s.IsGroup() || len(s.Countries)+len(s.Continents) > 0 {
		return true
	}
	for _, words := range [][]policy.Word{s.Union, s.Except} {
		for _, w := range words {
			if c.unsteadySet(w.Text, depth+1) {
				return true
			}
		}
	}
	return false
}

// fate is what happens to packets: none of them, some or all are let through.
// Limits and bounds let some through.
type fate struct {
	allowed  bool         // some of them, for certain or within a limit
	refused  bool         // some of them, for certain
	refuser  *policy.Rule // the first that refuses some; nil: the default
	refusals []box        // what it refuses
	known    bool
}

// fate follows packets that no ban and no state decides through a section.
func (c *checker) fate(s *policy.Section, packets []box) fate {
	f := fate{known: true}
	refuse := func(r *policy.Rule, part []box) {
		if !f.refused {
			f.refused, f.refuser, f.refusals = true, r, part
		}
	}
	packets, f.known = c.minusNeeded(packets)
	whole := hullOf(packets)
	for _, st := range c.standings(s) {
		if !f.known || len(packets) == 0 {
			return f
		}
		if st.rule.Action == policy.ClampMSS || !st.hull.meets(&whole) {
			continue
		}
		part := both(packets, st.packets)
		if len(part) == 0 {
			continue
		}
		if st.rule.Action == policy.Allow {
			f.allowed = true
		} else if ends(st.rule) {
			refuse(st.rule, part)
		}
		if ends(st.rule) {
			packets, f.known = c.effort.minus(packets, st.packets)
		}
	}
	if len(packets) > 0 && s.Default == policy.Allow {
		f.allowed = true
	} else if len(packets) > 0 {
		refuse(nil, packets)
	}
	return f
}

// section is the rules of a hook; nil where it is not policed.
func (c *checker) section(hook policy.Hook) *policy.Section {
	switch hook {
	case policy.Input:
		return c.policy.Input
	case policy.Output:
		return c.policy.Output
	}
	return c.policy.Forward
}

// defaultPos is where a section says what happens to the rest.
func defaultPos(s *policy.Section) policy.Pos {
	if s.DefaultPos.Line == 0 {
		return s.Pos
	}
	return s.DefaultPos
}
