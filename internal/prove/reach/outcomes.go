package reach

import (
	"slices"
	"strings"

	"sluice/internal/base/bdd"
	"sluice/internal/program"
)

// Outcome is what happens to some packets.
type Outcome struct {
	Verdict program.Verdict  // Accept, Drop or Reject
	Rule    *program.Rule    // that decided; nil where a hook's default did, or nobody objected
	Origin  program.Origin   // of the line or element that decided
	Hook    program.HookKind // of the chain that decided; "" where nobody objected
	Chain   string
	// Effects is what was counted, logged, asked of limits, noted in sets and
	// handed over on the way, sorted.
	Effects []string
	// Change is how the packet was rewritten, and whether it is not tracked; of
	// packets that do not pass, nothing.
	Change []string
	Region Region
	change string // the key of the change
	early  Region // what of it was refused before routing
}

// Outcomes says what a program does with every packet of a way. The regions are
// disjoint, and together they are all packets. The program is one of those that
// the universe was made of. Of limits and bounds of connections both is taken,
// that they let a packet through and that they do not, as "gate:" says.
func (u *Universe) Outcomes(p *program.Program, way Way) []Outcome {
	return u.OutcomesOf(p, way, bdd.Every)
}

// OutcomesOf is Outcomes of some packets of a way.
func (u *Universe) OutcomesOf(p *program.Program, way Way, of Region) []Outcome {
	return newExecution(u, p, way, true).run(of)
}

// treated is Outcomes, which tells no packets apart by whoever decided.
func (u *Universe) treated(p *program.Program, way Way) []Outcome {
	key := treatedKey{p, way}
	out, known := u.treatment[key]
	if !known {
		out = newExecution(u, p, way, false).run(bdd.Every)
		u.treatment[key] = out
	}
	return out
}

type treatedKey struct {
	program *program.Program
	way     Way
}

// Kinds is how many kinds of packets a program treats each in its own way.
func (u *Universe) Kinds(p *program.Program) (n int) {
	for _, way := range everyWay {
		n += len(u.treated(p, way))
	}
	return n
}

var everyWay = []Way{In, Through, Out}

// Allowed is the packets of a way that a program lets through, as long as its
// limits do.
func (u *Universe) Allowed(p *program.Program, way Way) Region {
	out := bdd.None
	for _, o := range u.treated(p, way) {
		if o.Verdict == program.Accept {
			out = u.Or(out, o.Region)
		}
	}
	return out
}

// Unlimited is the packets of a region for which it is not a limit that was
// reached, nor a set that the kernel fills, that decides: every limit lets them
// through, no such set holds them, and none of them proves a handshake.
func (u *Universe) Unlimited(r Region) Region {
	free := bdd.Every
	for _, d := range slices.Backward(u.dimensions) {
		switch {
		case strings.HasPrefix(string(d.field), "gate:"):
			free = u.And(free, u.flag(d.field))
		case strings.HasPrefix(string(d.field), "table:"), countsHandshakes(d.field):
			free = u.Minus(free, u.flag(d.field))
		}
	}
	return u.And(r, free)
}

// countsHandshakes says whether a field is there for limits to count handshakes by.
func countsHandshakes(f program.Field) bool {
	name, is := strings.CutPrefix(string(f), string(statusField("")))
	_, label := program.LabelBit(name)
	return is && (label || name == program.Socket || name == program.Demultiplexed)
}

// branch is packets that had the same way up to here.
type branch struct {
	flow   flow
	region Region
}

type flow struct {
	change  int // place in execution.changes
	effects int // place in execution.effects
	decider decider
}

// decider is who let a packet pass, where anybody asks.
type decider struct {
	rule   *program.Rule
	origin program.Origin
	hook   program.HookKind
	chain  string
}

type execution struct {
	u        *Universe
	program  *program.Program
	way      Way
	deciders bool // tell packets apart by whoever decided
	hook     program.Hook
	raw      bool

	changes  []change
	effects  [][]string
	placed   map[string]int // changes and effects by text
	matches  map[matchKey]Region
	accepted []branch
	over     map[outcomeKey]*Outcome
	order    []outcomeKey
	origin   program.Origin // of the element that the present rule was met by
}

type matchKey struct {
	rule   *program.Rule
	change int
	kind   program.HookKind
	raw    bool
}

type outcomeKey struct {
	verdict         program.Verdict
	effects, change int
	decider         decider
}

func newExecution(u *Universe, p *program.Program, way Way, deciders bool) *execution {
	return &execution{
		u: u, program: p, way: way, deciders: deciders, changes: []change{{}}, effects: [][]string{nil},
		placed: map[string]int{"change " + (&change{}).key(): 0, "effects ": 0}, matches: map[matchKey]Region{}, over: map[outcomeKey]*Outcome{},
	}
}

func (x *execution) run(of Region) []Outcome {
	live := []branch{{region: x.u.And(x.u.all(x.way), of)}}
	if x.way != Out {
		live = x.walk(prerouting, live)
		live = x.routed(live)
	} else {
		live = x.routed(live)
	}
	live = x.walk(ways[x.way], live)
	for _, b := range live {
		x.end(b, program.Accept, b.flow.decider)
	}
	out := make([]Outcome, 0, len(x.order))
	for _, k := range x.order {
		out = append(out, *x.over[k])
	}
	return out
}

// routed leaves the packets that the routing table sends this way.
func (x *execution) routed(in []branch) []branch {
	u, s := x.u, x.u.space
	var out []branch
	for _, b := range in {
		c := &x.changes[b.flow.change]
		switch {
		case len(c.destination) > 0:
			b.region = s.And(b.region, x.leads(c))
		case x.way == Out || u.by[program.DestinationType] == nil:
		case x.way == In:
			b.region = s.Minus(b.region, u.named(program.DestinationType, "unicast"))
		default:
			b.region = s.And(b.region, u.named(program.DestinationType, "unicast"))
		}
		if b.region != bdd.None {
			out = append(out, b)
		}
	}
	return out
}

// leads is the packets whose rewritten destination is on the way.
func (x *execution) leads(c *change) Region {
	v := &view{u: x.u, way: x.way}
	final := c.destination[len(c.destination)-1]
	switch {
	case x.way == Out:
		return bdd.Every
	case final.own:
		return every(x.way == In)
	case x.u.own.IsEmpty():
		return every(x.way == Through || !x.u.elsewhere)
	}
	home := v.address(program.Destination, x.u.own, c.destination)
	if x.way == In {
		return home
	}
	return x.u.space.Not(home)
}

func (x *execution) walk(stops []stop, live []branch) []branch {
	for _, at := range stops {
		x.raw = at.untracked()
		for _, h := range x.program.Hooks {
			if h.Kind != at.kind || h.Phase != at.phase {
				continue
			}
			asked, past := x.asked(h, live)
			live = x.merge(append(x.base(h, asked), past...))
		}
	}
	return live
}

// asked parts what a base chain sees from what it does not: NAT is asked of what
// begins a flow, and chains of devices of what comes by them.
func (x *execution) asked(h program.Hook, in []branch) (asked, past []branch) {
	u := x.u
	for _, b := range in {
		sees := bdd.Every
		if h.Phase == program.NAT {
			sees = u.begins()
			if x.changes[b.flow.change].untracked {
				sees = bdd.None
			}
			if d := u.by[statusField(rewrites(h.Kind))]; d != nil { // by another tool, before
				sees = u.Minus(sees, u.flag(d.field))
			}
		}
		if len(h.Devices) > 0 {
			sees = u.And(sees, u.named(program.InInterface, h.Devices...))
		}
		if r := u.And(b.region, sees); r != bdd.None {
			asked = append(asked, branch{b.flow, r})
		}
		if r := u.Minus(b.region, sees); r != bdd.None {
			past = append(past, branch{b.flow, r})
		}
	}
	return asked, past
}

// rewrites is the end of a packet that NAT at a hook rewrites, once in a flow's
// life (nf_nat_initialized).
func rewrites(k program.HookKind) string {
	if k == program.Prerouting || k == program.Output {
		return "dnat"
	}
	return "snat"
}

// base gives what a base chain lets through.
func (x *execution) base(h program.Hook, in []branch) []branch {
	c := x.program.Chain(h.Chain)
	if c == nil {
		return in
	}
	x.hook, x.accepted = h, nil
	for _, b := range in {
		for _, left := range x.chain(c, b, 0) {
			if h.Default == program.Accept {
				x.accepted = append(x.accepted, left)
			} else {
				x.end(left, h.Default, decider{hook: h.Kind, chain: h.Chain})
			}
		}
	}
	return x.accepted
}

// merge joins the packets that had the same way.
func (x *execution) merge(in []branch) []branch {
	if len(in) < 2 {
		return in
	}
	at := map[flow]int{}
	var out []branch
	for _, b := range in {
		if i, known := at[b.flow]; known {
			out[i].region = x.u.Or(out[i].region, b.region)
			continue
		}
		at[b.flow] = len(out)
		out = append(out, b)
	}
	return out
}

// chain gives what leaves a chain at its end or by a return.
func (x *execution) chain(c *program.Chain, in branch, depth int) (left []branch) {
	if depth > maxDepth {
		x.end(in, program.Drop, decider{hook: x.hook.Kind, chain: c.Name})
		return nil
	}
	live := []branch{in}
	for i := range c.Rules {
		r := &c.Rules[i]
		x.u.space.Check()
		var next []branch
		for _, b := range live {
			met := x.u.And(b.region, x.match(r, b.flow.change))
			if rest := x.u.Minus(b.region, met); rest != bdd.None {
				next = append(next, branch{b.flow, rest})
			}
			if met == bdd.None {
				continue
			}
			for _, e := range x.elements(r, branch{b.flow, met}) {
				x.origin = e.origin
				through, returned := x.actions(r, e.branch, depth)
				next, left = append(next, through...), append(left, returned...)
			}
		}
		live = x.merge(next)
		if len(live) == 0 {
			break
		}
	}
	return x.merge(append(left, live...))
}

// view is how the present hook sees packets with a change.
func (x *execution) view(change int) *view {
	return &view{u: x.u, program: x.program, way: x.way, kind: x.hook.Kind, raw: x.raw, change: &x.changes[change]}
}

func (x *execution) match(r *program.Rule, change int) Region {
	key := matchKey{r, change, x.hook.Kind, x.raw}
	if known, is := x.matches[key]; is {
		return known
	}
	v := x.view(change)
	out := bdd.Every
	for i := range slices.Backward(r.Match) {
		out = x.u.And(out, v.condition(&r.Match[i]))
	}
	x.matches[key] = out
	return out
}

// met is packets with the element by which they met a rule.
type met struct {
	branch branch
	origin program.Origin
}

// elements parts the packets that met a rule by the elements that they have met,
// where these are counted, or have places of their own that somebody asks for.
func (x *execution) elements(r *program.Rule, b branch) []met {
	out := []met{{branch: b}}
	for i := range r.Match {
		c := &r.Match[i]
		set := x.program.Set(c.Set)
		if set == nil || c.Not || len(set.Elements) == 0 {
			continue
		}
		groups := group(set, func(e *program.Element) any {
			if x.deciders {
				return [2]any{e.Counter, e.Origin}
			}
			return e.Counter
		})
		if len(groups) == 1 && set.Elements[groups[0][0]].Counter == "" && !x.deciders {
			continue
		}
		var next []met
		v := x.view(b.flow.change)
		for _, which := range groups {
			in := v.elements(set, setKey(c), which)
			first := &set.Elements[which[0]]
			for _, m := range out {
				if part := x.u.And(m.branch.region, in); part != bdd.None {
					part := branch{m.branch.flow, part}
					if first.Counter != "" {
						part = x.effect(part, program.ActionText(program.Count{Counter: first.Counter}))
					}
					next = append(next, met{part, first.Origin})
				}
			}
		}
		out = next
	}
	return out
}

// group gives the places of elements that are alike, in the order of the first.
func group(set *program.Set, of func(*program.Element) any) [][]int {
	at := map[any]int{}
	var out [][]int
	for i := range set.Elements {
		k := of(&set.Elements[i])
		n, known := at[k]
		if !known {
			n = len(out)
			at[k] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	return out
}

// effect notes what was done with packets.
func (x *execution) effect(b branch, text string) branch {
	list := slices.Clone(x.effects[b.flow.effects])
	at, _ := slices.BinarySearch(list, text)
	list = slices.Insert(list, at, text)
	key := "effects " + strings.Join(list, "\n")
	place, known := x.placed[key]
	if !known {
		place = len(x.effects)
		x.effects = append(x.effects, list)
		x.placed[key] = place
	}
	b.flow.effects = place
	return b
}

// changed gives packets another change.
func (x *execution) changed(b branch, edit func(*change)) branch {
	c := x.changes[b.flow.change]
	c.source, c.destination, c.mark = slices.Clone(c.source), slices.Clone(c.destination), slices.Clone(c.mark)
	edit(&c)
	key := "change " + c.key()
	place, known := x.placed[key]
	if !known {
		place = len(x.changes)
		x.changes = append(x.changes, c)
		x.placed[key] = place
	}
	b.flow.change = place
	return b
}

// end notes what happened to packets.
func (x *execution) end(b branch, v program.Verdict, by decider) {
	if b.region == bdd.None {
		return
	}
	key := outcomeKey{verdict: v, effects: b.flow.effects}
	if v == program.Accept {
		key.change = b.flow.change
	}
	if x.deciders {
		key.decider = by
	}
	o := x.over[key]
	if o == nil {
		x.order = append(x.order, key)
		o = &Outcome{
			Verdict: v, Rule: key.decider.rule, Origin: key.decider.origin, Hook: key.decider.hook, Chain: key.decider.chain,
			Effects: x.effects[key.effects], Change: x.changes[key.change].text(), change: x.changes[key.change].key(),
		}
		x.over[key] = o
	}
	o.Region = x.u.Or(o.Region, b.region)
	if v != program.Accept && x.hook.Kind == program.Prerouting {
		o.early = x.u.Or(o.early, b.region)
	}
}
