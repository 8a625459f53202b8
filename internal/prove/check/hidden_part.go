package check

import (
	"fmt"
	"slices"

	"sluice/internal/language/policy"
)

// hiddenParts finds rules of which the rules above, or bans, decide a part that
// the rule names itself. Two kinds count: a word of the rule that is without
// effect, and a range that rules with the opposite action cut into. What an
// exception above a wider rule takes from it is not one: that is how exceptions
// are written.
func (c *checker) hiddenParts() {
	for _, s := range c.sections() {
		all := c.standings(s)
		for i, st := range all {
			if !st.own || st.rule.Action == policy.ClampMSS || !st.known || len(st.left) == 0 || st.rule.Published {
				continue
			}
			if c.deadWords(s, all[:i], st) {
				continue
			}
			c.cutInto(s, all[:i], st)
		}
	}
}

// word is a part of a rule that can be looked at alone.
type word struct {
	pos  policy.Pos
	text string
	less policy.Rule // the rule with this word alone in its list
}

// words is the parts of a rule's lists that have more than one.
func wordsOf(r *policy.Rule) []word {
	var out []word
	for _, ref := range r.Services {
		for _, m := range ref.Matches {
			if len(r.Services)+len(ref.Matches) == 2 {
				continue // the only one
			}
			text := ref.Text
			if len(ref.Matches) > 1 {
				text = m.String() + " of " + ref.Text
			}
			w := word{ref.Pos, text, *r}
			w.less.Services = []policy.ServiceRef{{Pos: ref.Pos, Text: ref.Text, Matches: []policy.ServiceMatch{m}}}
			out = append(out, w)
		}
	}
	for _, side := range []struct {
		who *policy.Who
		set func(*policy.Rule, *policy.Who)
	}{
		{r.From, func(r *policy.Rule, w *policy.Who) { r.From = w }},
		{r.To, func(r *policy.Rule, w *policy.Who) { r.To = w }},
	} {
		if side.who == nil || side.who.Not || len(side.who.Items) < 2 {
			continue
		}
		for _, item := range side.who.Items {
			w := word{item.Pos, itemText(item), *r}
			side.set(&w.less, &policy.Who{Pos: side.who.Pos, Items: []policy.WhoItem{item}})
			out = append(out, w)
		}
	}
	return out
}

// deadWords finds the words of a rule's lists that the rules above leave
// nothing of.
func (c *checker) deadWords(s *policy.Section, above []*standing, st *standing) bool {
	found := false
	for _, w := range wordsOf(st.rule) {
		var packets []box
		for _, family := range familiesOf(st.rule.Family) {
			packets = append(packets, c.packetsOf(s.Hook, &w.less, family)...)
		}
		packets, ok := c.minusNeeded(packets)
		if !ok || len(packets) == 0 {
			continue
		}
		rest, ok := c.effort.minus(packets, c.banned(s.Hook))
		if !ok {
			continue
		}
		if len(rest) == 0 {
			found = true
			f := c.report(HiddenPart, Warning, w.pos, "remove it, or exempt it by never-ban", "%s has no effect in this rule: all of its packets are banned", w.text)
			c.shows(f, s.Hook, packets, st.rule)
			continue
		}
		f := c.deadWord(s, above, st.rule, w, rest)
		found = found || f
	}
	return found
}

func (c *checker) deadWord(s *policy.Section, above []*standing, r *policy.Rule, w word, packets []box) bool {
	left, may, whole := packets, c.effort.question(), hullOf(packets)
	var deciding []*policy.Rule
	for _, e := range above {
		if !ends(e.rule) || !e.hull.meets(&whole) {
			continue
		}
		if !c.effort.compare(len(left)*len(e.packets), &may) {
			return false
		}
		if !overlap(left, e.packets) {
			continue
		}
		var ok bool
		if left, ok = c.effort.cut(left, e.packets, &may); !ok {
			return false
		}
		deciding = append(deciding, e.rule)
		if len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		return false
	}
	severity, hint := Remark, "remove it from the rule"
	by, related, now := c.namesOf(deciding, r)
	for _, e := range deciding {
		if e.Action != r.Action {
			severity, hint = Warning, "remove it from the rule, or move the rule above "+place(deciding[0].Pos, r.Pos)
		}
	}
	verb := "decide"
	if len(deciding) == 1 {
		verb = "decides"
	}
	f := c.report(HiddenPart, severity, w.pos, hint, "%s has no effect in this rule%s: %s %s all of its packets", w.text, now, by, verb)
	f.Related = related
	c.shows(f, s.Hook, packets, r)
	return true
}

// namesOf speaks of rules above another one.
func (c *checker) namesOf(rules []*policy.Rule, below *policy.Rule) (by string, related []Related, now string) {
	var places []string
	changing := c.changing(below.From) || c.changing(below.To)
	for _, e := range rules {
		related = append(related, Related{e.Pos, e.Text})
		places = append(places, place(e.Pos, below.Pos))
		changing = changing || c.changing(e.From) || c.changing(e.To)
	}
	by = fmt.Sprintf("%q on %s", rules[0].Text, places[0])
	if len(rules) > 1 {
		by = "the rules on " + joinPlaces(places)
	}
	if changing {
		now = " with the current lists"
	}
	return by, related, now
}

// cutInto finds rules with the opposite action that decide a part of what a rule
// names: neither within it, which would be an exception, nor about every
// service, which would be a list of those who may do nothing.
func (c *checker) cutInto(s *policy.Section, above []*standing, st *standing) {
	r := st.rule
	var lost []box
	var cutting []*policy.Rule
	packets, may, whole := st.rest, c.effort.question(), hullOf(st.rest)
	for _, e := range above {
		if !ends(e.rule) || !e.known || !e.hull.meets(&whole) {
			continue
		}
		if !c.effort.compare(len(packets)*len(e.packets), &may) {
			return
		}
		part := realPackets(both(packets, e.packets))
		if len(part) == 0 {
			continue
		}
		if (e.rule.Action == policy.Allow) != (r.Action == policy.Allow) && len(e.rule.Services) > 0 && !anyService(e.rule) &&
			c.cutsNamed(s.Hook, st, e) && !c.within(e.packets, st.packets) {
			lost = append(lost, part...)
			cutting = append(cutting, e.rule)
		}
		var ok bool
		if packets, ok = c.effort.cut(packets, e.packets, &may); !ok {
			return
		}
	}
	if len(cutting) == 0 || len(packets) == 0 {
		return
	}
	by, related, now := c.namesOf(cutting, r)
	verb := map[bool]string{true: "decides", false: "decide"}[len(cutting) == 1]
	f := c.report(HiddenPart, Remark, r.Pos, "move the rule above "+place(cutting[0].Pos, r.Pos)+" if it should win, or narrow one of them",
		"a part of this rule is hidden%s: %s %s %s; what is left is %s", now, by, verb, c.describe(s.Hook, lost, st.rest), c.describe(s.Hook, packets, st.rest))
	f.Related = related
	c.shows(f, s.Hook, lost, r)
}

func anyService(r *policy.Rule) bool {
	return slices.ContainsFunc(r.Services, func(s policy.ServiceRef) bool {
		return slices.ContainsFunc(s.Matches, func(m policy.ServiceMatch) bool { return m.Any })
	})
}

func (c *checker) within(boxes, of []box) bool {
	rest, ok := c.effort.minus(boxes, of)
	return !ok || len(rest) == 0
}

// cutsNamed says whether a rule above cuts one below in something that the lower
// one names.
func (c *checker) cutsNamed(hook policy.Hook, st, e *standing) bool {
	for i := range st.packets {
		for j := range e.packets {
			a, b := &st.packets[i], &e.packets[j]
			if !a.overlaps(b) {
				continue
			}
			u := c.universe(hook, familyOfBox(a))
			for d := range a.numbers {
				if !sameNumbers(a.numbers[d], u.numbers[d]) && len(a.numbers[d].minus(b.numbers[d])) > 0 {
					return true
				}
			}
			for d := range a.addresses {
				if !a.addresses[d].Equal(u.addresses[d]) && !b.addresses[d].ContainsSet(a.addresses[d]) {
					return true
				}
			}
		}
	}
	return false
}
