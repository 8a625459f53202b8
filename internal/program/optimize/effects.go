package optimize

import (
	"fmt"
	"maps"
	"slices"

	"sluice/internal/program"
)

// facts answers what passes ask of rules: whether a packet can match both,
// whether they may change places, whether one leaves anything for the other.
// Each answer is on the safe side: what cannot be told is not promised. It is
// good until sets or chains of the program are changed.
type facts struct {
	program *program.Program
	sets    map[string]*program.Set
	chains  map[string]*program.Chain
	extents map[string]extent // of sets, by id
	effects map[string]effect // of chains, by name
	given   *program.Rule     // that all packets match of which it is asked; nil: there is none

	compared *int // how often rules were held against each other
}

func newFacts(p *program.Program) *facts {
	f := &facts{program: p, compared: new(int), sets: map[string]*program.Set{}, chains: map[string]*program.Chain{}, extents: map[string]extent{}, effects: map[string]effect{}}
	for i := range p.Sets {
		f.sets[p.Sets[i].ID] = &p.Sets[i]
	}
	for i := range p.Chains {
		f.chains[p.Chains[i].Name] = &p.Chains[i]
	}
	return f
}

// scope is what a rule's conditions say. It can be kept beside the rule and
// asked as often as is needed.
type scope struct {
	// within bounds the values of fields: a packet that matches has one of
	// them. By field, with the mask where there is one.
	within map[string]extent
	// needs are the conditions, each with its exact extent where it has one.
	needs []need
	texts map[string]bool // conditions as text, turned round those that are
	never bool            // no packet matches
}

type need struct {
	key  string
	text string
	is   extent // kind 0: the text alone
}

// disjoint says that no packet matches both rules.
func (f *facts) disjoint(a, b *program.Rule) bool { return f.scope(a).disjoint(f.scope(b)) }

// covers says that every packet that matches b matches a.
func (f *facts) covers(a, b *program.Rule) bool { return f.scope(a).covers(f.scope(b)) }

func (s *scope) disjoint(b *scope) bool {
	if s.never || b.never {
		return true
	}
	if len(s.within) > len(b.within) {
		s, b = b, s
	}
	for key, x := range s.within {
		if y, has := b.within[key]; has && !x.meets(y) {
			return true
		}
	}
	for text := range s.texts {
		if b.texts[opposite(text)] {
			return true
		}
	}
	return false
}

func (s *scope) covers(b *scope) bool {
	if b.never {
		return true
	}
	for _, n := range s.needs {
		if b.texts[n.text] {
			continue
		}
		has, there := b.within[n.key]
		if n.is.kind == 0 || !there || !has.inside(n.is) {
			return false
		}
	}
	return true
}

// opposite turns the text of a condition round.
func opposite(text string) string {
	if text[0] == '!' {
		return text[1:]
	}
	return "!" + text
}

func conditionText(c *program.Condition) string {
	plain := *c
	plain.Not = false
	text := plain.String()
	if c.Not {
		return "!" + text
	}
	return text
}

// scope reads the conditions of a rule.
func (f *facts) scope(r *program.Rule) *scope {
	s := &scope{within: map[string]extent{}, texts: map[string]bool{}}
	for i := range r.Match {
		c := &r.Match[i]
		n := need{key: extentKey(c), text: conditionText(c)}
		if e, ok := f.extentOf(c); ok {
			n.is = e
			s.bound(n.key, e)
		} else if len(c.SetKey) > 0 && !c.Not {
			f.boundKey(s, c)
		}
		s.needs = append(s.needs, n)
		s.texts[n.text] = true
		if s.texts[opposite(n.text)] {
			s.never = true
		}
	}
	for _, field := range addressFields {
		if e, has := s.within[string(field)]; has {
			s.bound(string(program.Family), familiesOf(e.addresses))
		}
	}
	return s
}

// values is how many values, or ranges of them, a scope has in its fields.
func (s *scope) values() int {
	n := 0
	for _, e := range s.within {
		n += len(e.numbers) + len(e.names) + e.addresses.Len4() + e.addresses.Len6()
	}
	return n
}

func (s *scope) bound(key string, e extent) {
	if old, has := s.within[key]; has {
		e = old.and(e)
	}
	s.within[key] = e
	s.never = s.never || e.empty()
}

var addressFields = []program.Field{program.Source, program.Destination, program.OriginalSource, program.OriginalDestination}

func isAddress(f program.Field) bool { return slices.Contains(addressFields, f) }

func extentKey(c *program.Condition) string {
	if c.Mask != 0 {
		return fmt.Sprintf("%s&%x", c.Field, c.Mask)
	}
	return string(c.Field)
}

// extentOf gives the values with which a condition holds; not ok where they
// cannot be told: opaque text, sets that change, several keys, bits of which a
// packet has several.
func (f *facts) extentOf(c *program.Condition) (extent, bool) {
	switch {
	case c.Text != "" || c.Field == program.Opaque || c.Field == program.Status || c.Field == program.Extension:
		return extent{}, false
	case c.Set != "":
		set := f.sets[c.Set]
		if set == nil || set.Life != program.Static || len(set.Key) != 1 || len(c.SetKey) > 1 {
			return extent{}, false
		}
		e := f.extentOfSet(set)
		if c.Not {
			e = e.complement()
		}
		return e, true
	}
	if slices.ContainsFunc(c.Names, followed) {
		return extent{}, false
	}
	e := extentOfValues(c.Names, c.Numbers, c.Addresses)
	if c.Not {
		e = e.complement()
	}
	return e, true
}

// followed says of a name that the host decides what it stands for.
func followed(name string) bool {
	_, is := program.FollowedName(name)
	return is
}

// boundKey bounds each field of a key of several by what the set has for it.
func (f *facts) boundKey(s *scope, c *program.Condition) {
	set := f.sets[c.Set]
	if set == nil || set.Life != program.Static || len(set.Key) != len(c.SetKey) {
		return
	}
	for i, field := range c.SetKey {
		id := fmt.Sprintf("%s %d", c.Set, i)
		e, known := f.extents[id]
		if !known {
			e = extentOfPart(set, i)
			f.extents[id] = e
		}
		s.bound(string(field), e)
	}
}

// effect is what the actions of a rule do beside ending its chain.
type effect struct {
	reads  map[string]bool // fields and sets that conditions look at
	writes map[string]bool // fields and sets that actions change
	ends   bool            // no packet that matches goes on with the next rule
	comes  bool            // of chains: a packet may come back to where it came from
	quiet  bool            // counts and keeps out of tracking at the most
	bare   bool            // verdicts, counters and tracking alone: nothing that depends on other packets
}

// terminal says that no packet that matches the rule goes on with the next rule
// of its chain.
func (f *facts) terminal(r *program.Rule) bool { return f.effect(r).ends }

// commute says that a and b may change places: whatever the packet, verdict,
// rewriting, tracking, counters, log and limits stay the same.
func (f *facts) commute(a, b *program.Rule) bool {
	*f.compared++
	x, y := f.effect(a), f.effect(b)
	if !x.independent(y) {
		return false
	}
	return sameInAnyOrder(a, b, x, y) || f.disjoint(a, b)
}

// independent says that neither changes what the other looks at. Opaque text
// may look at anything.
func (e effect) independent(o effect) bool {
	return apart(e.writes, o.reads) && apart(o.writes, e.reads)
}

func apart(writes, reads map[string]bool) bool {
	if len(writes) > 0 && reads[string(program.Opaque)] {
		return false
	}
	for k := range writes {
		if reads[k] {
			return false
		}
	}
	return true
}

// sameInAnyOrder holds for rules that may match the same packet: both only note
// something and go on, or both do the same and end.
func sameInAnyOrder(a, b *program.Rule, x, y effect) bool {
	if x.quiet && y.quiet {
		return true
	}
	if !x.bare || !y.bare || !x.ends || !y.ends || !slices.Equal(a.Actions, b.Actions) {
		return false
	}
	// Who dropped a packet is told to whoever asks.
	return a.Origin == b.Origin || a.Actions[len(a.Actions)-1] == program.Action(program.Accept)
}

// effect follows the actions of a rule.
func (f *facts) effect(r *program.Rule) effect {
	out := effect{reads: map[string]bool{}, writes: map[string]bool{}, quiet: true, bare: true}
	out.ends = f.add(&out, r)
	return out
}

// add adds what a rule reads and writes, and says whether it ends.
func (f *facts) add(out *effect, r *program.Rule) (ends bool) {
	for i := range r.Match {
		f.reading(out, &r.Match[i])
	}
	gated := false
	for _, a := range r.Actions {
		e := program.EffectOf(a)
		out.quiet, out.bare = out.quiet && e.Plain() && !e.Ends, out.bare && e.Plain()
		for _, field := range e.Reads {
			out.reads[string(field)] = true
		}
		for _, id := range e.Asks {
			out.reads["set "+id] = true
		}
		for _, field := range e.Writes {
			out.writes[string(field)] = true
		}
		for _, id := range e.Fills {
			out.writes["set "+id] = true
		}
		for _, chain := range f.leads(e) {
			back := !f.through(out, chain)
			ends = ends || e.Calls != "" && !back && !gated
		}
		gated = gated || e.Gates || len(e.Fills) > 0
		ends = ends || e.Ends && !gated
	}
	return ends
}

// leads is where an action leads.
func (f *facts) leads(e program.Effect) []string {
	var out []string
	if chain := e.Calls + e.Goes; chain != "" {
		out = append(out, chain)
	}
	set := f.sets[e.Map]
	if set == nil {
		return out
	}
	seen := map[string]bool{}
	for _, element := range set.Elements {
		for _, chain := range f.program.Leads(element.Verdict) {
			if !seen[chain] {
				seen[chain] = true
				out = append(out, chain)
			}
		}
	}
	return out
}

func (f *facts) reading(out *effect, c *program.Condition) {
	out.reads[string(c.Field)] = true
	for _, k := range c.SetKey {
		out.reads[string(k)] = true
	}
	if c.Set != "" {
		out.reads["set "+c.Set] = true
		if set := f.sets[c.Set]; set == nil || set.Counters {
			out.bare = false // its elements count
		}
	}
}

// through adds what a chain does and says whether no packet comes back from it.
func (f *facts) through(out *effect, chain string) bool {
	e := f.chainEffect(chain)
	maps.Copy(out.reads, e.reads)
	maps.Copy(out.writes, e.writes)
	return !e.comes
}

func (f *facts) chainEffect(name string) effect {
	if e, known := f.effects[name]; known {
		return e
	}
	out := effect{reads: map[string]bool{}, writes: map[string]bool{}, comes: true}
	f.effects[name] = out // chains never lead back to themselves
	chain := f.chains[name]
	if chain == nil {
		return out
	}
	open := true // packets reach the end so far
	back := false
	for i := range chain.Rules {
		r := &chain.Rules[i]
		ends := f.add(&out, r)
		back = back || open && f.comesBack(r)
		if ends && (len(r.Match) == 0 || f.given != nil && f.covers(r, f.given)) {
			open = false
		}
	}
	out.comes = open || back
	f.effects[name] = out
	return out
}

// comesBack says whether a rule may send a packet back to where its chain was
// entered.
func (f *facts) comesBack(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		if e.Map == "" {
			return f.goesBack(e)
		}
		set := f.sets[e.Map]
		return set == nil || slices.ContainsFunc(set.Elements, func(e program.Element) bool { return f.goesBack(program.EffectOf(e.Verdict)) })
	})
}

func (f *facts) goesBack(e program.Effect) bool {
	return e.Decides == program.Return || e.Goes != "" && f.chainEffect(e.Goes).comes
}
