package optimize

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/internal/addrset"
	"sluice/internal/program"
)

// keyFields are the fields in which rules that are merged may differ, in the
// order in which a key has them.
var keyFields = []program.Field{
	program.InInterface, program.OutInterface, program.Source, program.Destination,
	program.Protocol, program.SourcePort, program.Port, program.Mark,
}

const (
	// fewestRules are worth a set: below that, one comparison after the other
	// costs less than a lookup.
	fewestRules = 5
	// mostBoxes bounds what one rule that lists many values becomes.
	mostBoxes = 64
	// keyBytes is what a key may have in the kernel, each part a multiple of 4
	// (NFT_DATA_VALUE_MAXLEN of nf_tables.h).
	keyBytes = 64
)

// candidate is a rule as the merging sees it.
type candidate struct {
	rule   *program.Rule
	said   *scope // by scopeOf
	effect effect
	alone  bool // it is not of a kind that is merged

	shape     string              // fields and the other conditions
	signature string              // what rules of one group have in common
	fields    []program.Field     // in which they may differ
	values    [][]interval        // of this rule, for each field
	constants []program.Condition // the other conditions
	counter   string              // that it counts on
	rest      []program.Action    // what it does beside counting, before the verdict
	tail      program.Action      // the verdict; nil where it goes on
}

// merger takes the rules of one chain apart into items: groups of rules that
// may stand as one in the place of the first, and rules that stand alone.
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
			return c.meets(interval{point{lo: r.From}, point{lo: r.To}})
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

func sameAction(a, b program.Action) bool { return program.ActionText(a) == program.ActionText(b) }

// cuts says whether a packet that the rule matches is none of a later rule's
// business: the rule ends it, or both only do the same.
func (c *candidate) cuts(later *candidate) bool {
	if c.effect.ends {
		return true
	}
	return c.tail == nil && later.tail == nil && c.counter == "" && later.counter == ""
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

// openField is the field whose ranges are searched: an address, else a port.
func openField(fields []program.Field) int {
	for _, is := range []func(program.Field) bool{isAddress, func(f program.Field) bool { return f == program.Port || f == program.SourcePort }} {
		if i := slices.IndexFunc(fields, is); i >= 0 {
			return i
		}
	}
	return 0
}

// boxes are the combinations of the rule's values. Of two families nothing is.
func (c *candidate) boxes() []box {
	out := []box{nil}
	for _, values := range c.values {
		var next []box
		for _, b := range out {
			for _, v := range values {
				if !otherFamily(b, v) {
					next = append(next, append(slices.Clone(b), v))
				}
			}
		}
		out = next
	}
	return out
}

func otherFamily(b box, v interval) bool {
	return v.from.kind >= anAddress4 && slices.ContainsFunc(b, func(o interval) bool {
		return o.from.kind >= anAddress4 && o.from.kind != v.from.kind
	})
}

// candidate reads a rule.
func (m *merger) candidate(r *program.Rule) *candidate {
	c := &candidate{rule: r}
	shared := c.readActions()
	if !m.readMatch(c) {
		c.fields, c.values, c.constants, shared = nil, nil, nil, false
	}
	c.alone = !shared
	var parts []string
	for _, f := range c.fields {
		parts = append(parts, "by "+string(f))
	}
	constants := make([]string, len(c.constants))
	for i := range c.constants {
		constants[i] = conditionText(&c.constants[i])
	}
	slices.Sort(constants)
	parts = append(parts, constants...)
	c.shape = strings.Join(parts, "\n")
	if c.alone {
		c.effect = m.effect(r)
		return c
	}
	parts = append(parts, "stage "+string(r.Stage))
	for _, a := range c.rest {
		parts = append(parts, "do "+program.ActionText(a))
	}
	if len(c.rest) > 0 && c.tail != nil {
		// A map says the verdict and nothing else of a packet, and what stands
		// before it is done to those too that it does not have.
		parts = append(parts, "then "+program.ActionText(c.tail))
	}
	parts = append(parts, fmt.Sprint("ends ", c.tail != nil))
	if !m.counters {
		parts = append(parts, "count "+c.counter)
	}
	c.signature = strings.Join(parts, "\n")
	key := c.signature
	if c.tail != nil {
		key += "\n" + program.ActionText(c.tail)
	}
	effect, known := m.alike[key]
	if !known {
		effect = m.effect(r)
		m.alike[key] = effect
	}
	c.effect = effect
	return c
}

// readActions takes the actions apart; false where they are not of a kind that
// several rules can share: limits and logs are each rule's own.
func (c *candidate) readActions() bool {
	counted := false
	for i, a := range c.rule.Actions {
		switch a := a.(type) {
		case program.Count:
			if counted {
				return false
			}
			counted, c.counter = true, a.Counter
		case program.NoTrack, program.SetMark:
			c.rest = append(c.rest, a)
		case program.Verdict, program.Jump, program.Goto:
			if i != len(c.rule.Actions)-1 {
				return false
			}
			c.tail = a
		default:
			return false
		}
	}
	return len(c.rest) > 0 || c.tail != nil
}

// readMatch parts the conditions into those in which rules may differ and the
// others; false where there is none of the former.
func (m *merger) readMatch(c *candidate) bool {
	times := map[program.Field]int{}
	for _, k := range c.rule.Match {
		times[k.Field]++
		for _, f := range k.SetKey {
			times[f]++
		}
		if set := m.sets[k.Set]; set != nil && set.Counters {
			return false // it would count before the others have been asked
		}
	}
	values := map[program.Field][]interval{}
	boxes := 1
	for _, k := range c.rule.Match {
		v := m.valuesOf(&k)
		if times[k.Field] > 1 || len(v) == 0 {
			c.constants = append(c.constants, k)
			continue
		}
		values[k.Field] = v
		boxes *= len(v)
	}
	for _, f := range keyFields {
		if v := values[f]; v != nil {
			c.fields = append(c.fields, f)
			c.values = append(c.values, v)
		}
	}
	return len(c.fields) > 0 && boxes <= mostBoxes
}

// valuesOf gives the values that a condition lists, as far as they can be part
// of a key.
func (m *merger) valuesOf(k *program.Condition) []interval {
	if k.Not || k.Mask != 0 || k.Set != "" || !slices.Contains(keyFields, k.Field) {
		return nil
	}
	var out []interval
	switch {
	case len(k.Addresses) > 0:
		var b addrset.Builder
		for _, r := range k.Addresses {
			b.AddRange(addrset.Range{From: r.From, To: r.To})
		}
		for r := range b.Set().Each() {
			out = append(out, interval{addressPoint(r.From), addressPoint(r.To)})
		}
	case len(k.Numbers) > 0:
		for _, r := range mergedNumbers(k.Numbers) {
			// ICMP is of one family each, which the key of a set does not say.
			if k.Field == program.Protocol && (r.From != r.To || r.From == protocolICMP || r.From == protocolICMPv6) {
				return nil
			}
			if k.Field == program.Mark && r.From != r.To {
				return nil // in the machine's byte order, which ranges cannot have
			}
			out = append(out, fewValues(r)...)
		}
	default:
		for _, n := range slices.Compact(slices.Sorted(slices.Values(k.Names))) {
			if strings.HasSuffix(n, "*") || followed(n) {
				return nil
			}
			p := m.names.of(n)
			out = append(out, interval{p, p})
		}
	}
	return out
}

// mostValues is how many values of a range stand one by one, which lets them be
// part of a hash.
const mostValues = 8

func fewValues(r program.NumberRange) []interval {
	if r.To-r.From >= mostValues {
		return []interval{{point{lo: r.From}, point{lo: r.To}}}
	}
	var out []interval
	for n := r.From; n <= r.To; n++ {
		out = append(out, interval{point{lo: n}, point{lo: n}})
	}
	return out
}

const (
	protocolICMP   = 1
	protocolICMPv6 = 58
)
