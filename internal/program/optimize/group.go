package optimize

import (
	"maps"
	"slices"

	"sluice/internal/program"
)

// merger takes the rules of one chain apart into items: groups of rules that
// may stand as one in place of the first, and rules that stand alone.
type merger struct {
	*facts
	names    names
	alike    map[string]effect // of rules that do the same, by what they ask and do
	counters bool              // elements may be counted
	items    []*item
	blocks   []*item          // what a rule that moves may have to go past, by place
	fences   []*item          // the same of rules that stand alone, one of each shape
	fenceOf  map[string]*item // by shape
	checks   int              // comparisons that are left
	holds    int              // comparisons of boxes that are left
}

// item is one place in a chain.
type item struct {
	members []*candidate
	scope   *scope                   // of what the members have in common
	covers  map[program.Field]*cover // the values of the members, by field
	effect  effect
	same    bool // all members do the very same

	last int // place of the last of the rules, in merger.items

	kept []box // what each member decides, without what those before it do
	of   []int // the member that a box is of
	in   *boxes
}

const (
	// allChecks is how many comparisons of rules with items a chain may take;
	// then only the last items are looked at.
	allChecks  = 300_000
	lastChecks = 16
	// allHolds and holdsPerRule are how many comparisons of boxes they may take;
	// then a rule may take lastHolds.
	allHolds     = 300_000
	holdsPerRule = 30
	lastHolds    = 64
	// likeOne is how many values of a rule are as quickly looked up as one.
	likeOne = 16
)

// held takes comparisons of boxes, mine being those of one rule; false where
// there are none left.
func (m *merger) held(n int, mine *int) bool {
	*mine += n
	m.holds -= n
	*m.compared += n
	return m.holds >= 0 || *mine <= lastHolds
}

// scopeOf gives what a rule's conditions say, which most rules are never asked.
func (m *merger) scopeOf(c *candidate) *scope {
	if c.said == nil {
		c.said = m.scope(c.rule)
	}
	return c.said
}

// gather makes the items of the rules of a chain. Those of lone are left alone.
func (m *merger) gather(rules []*candidate, lone map[*candidate]bool) {
	m.items, m.blocks, m.fences, m.fenceOf = nil, nil, nil, map[string]*item{}
	m.checks, m.holds = allChecks, allHolds+holdsPerRule*len(rules)
	last := map[string]int{}
	for _, c := range rules {
		if c.alone || lone[c] {
			m.lone(c)
			continue
		}
		if at, has := last[c.signature]; has && m.reaches(c, at) && m.admit(m.items[at], c) {
			continue
		}
		x := m.newItem(c)
		if !m.admit(x, c) {
			m.lone(c)
			continue
		}
		last[c.signature], x.last = len(m.items), len(m.items)
		m.items, m.blocks = append(m.items, x), append(m.blocks, x)
	}
}

// lone lets a rule stand where it stands. What others that go past such rules
// have to be held against is one block for all of one shape.
func (m *merger) lone(c *candidate) {
	at := len(m.items)
	m.items = append(m.items, &item{members: []*candidate{c}})
	if len(c.fields) == 0 {
		m.blocks = append(m.blocks, &item{members: []*candidate{c}, scope: m.scopeOf(c), effect: c.effect, same: true, last: at})
		return
	}
	fence := m.fenceOf[c.shape]
	if fence == nil {
		fence = m.newItem(c)
		m.fenceOf[c.shape] = fence
		m.fences = append(m.fences, fence)
	}
	fence.last = at
	fence.take(c)
}

// reaches says whether a rule at the end may move up to the item.
func (m *merger) reaches(c *candidate, at int) bool {
	says, met := m.scopeOf(c), 0
	effort := 1 + says.values()/likeOne
	stops := func(x *item) bool {
		if met++; m.checks <= 0 && met > lastChecks {
			return true
		}
		m.checks -= effort
		*m.compared += effort
		return x.last > at && !x.commutes(c, says)
	}
	for _, x := range slices.Backward(m.blocks) {
		if x.last <= at {
			break
		}
		if stops(x) {
			return false
		}
	}
	return !slices.ContainsFunc(m.fences, stops)
}

// newItem is the item that a rule begins.
func (m *merger) newItem(c *candidate) *item {
	x := &item{effect: c.effect, same: true, covers: map[program.Field]*cover{}, in: newBoxes(openField(c.fields))}
	rest := *m.scopeOf(c)
	rest.within = maps.Clone(rest.within)
	for _, f := range c.fields {
		delete(rest.within, string(f))
		x.covers[f] = &cover{}
	}
	delete(rest.within, string(program.Family)) // may be that of an address
	rest.never = false
	rest.texts = map[string]bool{}
	for i := range c.constants {
		rest.texts[conditionText(&c.constants[i])] = true
	}
	x.scope = &rest
	return x
}

// take makes the rule the last member, whatever it decides.
func (x *item) take(c *candidate) {
	for i, f := range c.fields {
		for _, v := range c.values[i] {
			x.covers[f].add(v)
		}
	}
	x.members = append(x.members, c)
	x.same = x.same && slices.EqualFunc(x.members[0].rule.Actions, c.rule.Actions, sameAction)
	x.effect = x.effect.with(c.effect)
}

// commutes says whether a rule may go past the item.
func (x *item) commutes(c *candidate, says *scope) bool {
	if !x.effect.independent(c.effect) {
		return false
	}
	if x.effect.quiet && c.effect.quiet {
		return true
	}
	if x.same && len(x.members) > 0 && sameInAnyOrder(x.members[0].rule, c.rule, x.effect, c.effect) {
		return true
	}
	if x.scope.disjoint(says) {
		return true
	}
	for field, covered := range x.covers {
		if e, has := says.within[string(field)]; has && !covered.meetsExtent(e) {
			return true
		}
	}
	return false
}

// mostRanges bounds the ranges of an extent that are looked up one by one.
const mostRanges = 256

// meetsExtent says whether a value of the extent is covered; true where that
// would take long to tell.
func (c *cover) meetsExtent(e extent) bool {
	switch {
	case e.kind == ofNumbers && len(e.numbers) <= mostRanges:
		return slices.ContainsFunc(e.numbers, func(r program.NumberRange) bool {
			return c.meets(interval{numberPoint(r.From), numberPoint(r.To)})
		})
	case e.kind == ofAddresses && e.addresses.Len4()+e.addresses.Len6() <= mostRanges:
		for r := range e.addresses.Each() {
			if c.meets(interval{addressPoint(r.From), addressPoint(r.To)}) {
				return true
			}
		}
		return false
	}
	return true
}

// admit makes the rule the last member of the item, where what it decides can
// be told apart from what the members before it do.
func (m *merger) admit(x *item, c *candidate) bool {
	mine := 0
	var kept []box
	open := c.boxes()
	wide := len(x.in.wide)
	for len(open) > 0 {
		b := open[len(open)-1]
		open = open[:len(open)-1]
		at := x.in.meeting(b)
		if !m.held(x.in.effort(b), &mine) {
			return false
		}
		if at < 0 {
			if _, ok := x.in.key(b); !ok {
				if wide++; wide > wideBoxes {
					return false
				}
			}
			kept = append(kept, b)
			continue
		}
		if !x.members[x.of[at]].cuts(c) {
			return false
		}
		open = append(open, b.without(x.in.all[at])...)
		if len(open)+len(kept)+len(x.kept) > 4*len(x.members)+1024 {
			return false
		}
	}
	n := len(x.members)
	for _, b := range kept {
		x.in.add(b)
		x.kept, x.of = append(x.kept, b), append(x.of, n)
	}
	x.take(c)
	return true
}

// with is what two rules do.
func (e effect) with(o effect) effect {
	join := func(a, b map[string]bool) map[string]bool {
		for k := range b {
			if !a[k] {
				a = maps.Clone(a)
				maps.Copy(a, b)
				return a
			}
		}
		return a
	}
	return effect{
		reads: join(e.reads, o.reads), writes: join(e.writes, o.writes),
		ends: e.ends && o.ends, quiet: e.quiet && o.quiet, bare: e.bare && o.bare,
	}
}
