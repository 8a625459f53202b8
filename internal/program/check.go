package program

import (
	"errors"
	"fmt"
	"slices"
)

// Check says every way in which the program is not well formed: names given
// twice, jumps to chains that are not there, sets and counters that nobody
// declared, chains that reach themselves, rules behind a verdict.
func (p *Program) Check() error {
	c := checker{program: p, chains: map[string]*Chain{}, sets: map[string]*Set{}, counters: map[string]bool{}, flowtables: map[string]bool{}}
	c.declare()
	for i := range p.Sets {
		c.elements(&p.Sets[i])
	}
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			c.rule(&p.Chains[i], j, &p.Chains[i].Rules[j])
		}
	}
	for i := range p.Chains {
		c.reach(p.Chains[i].Name, nil)
	}
	return errors.Join(c.errs...)
}

type checker struct {
	program    *Program
	chains     map[string]*Chain
	sets       map[string]*Set
	counters   map[string]bool
	flowtables map[string]bool
	done       map[string]bool
	errs       []error
}

func (c *checker) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *checker) declare() {
	for i := range c.program.Chains {
		chain := &c.program.Chains[i]
		if c.chains[chain.Name] != nil {
			c.fail("duplicate chain %s", chain.Name)
		}
		c.chains[chain.Name] = chain
	}
	for i := range c.program.Sets {
		set := &c.program.Sets[i]
		if c.sets[set.ID] != nil {
			c.fail("duplicate set %s", set.ID)
		}
		c.sets[set.ID] = set
	}
	for _, counter := range c.program.Counters {
		if c.counters[counter.Name] {
			c.fail("duplicate counter %s", counter.Name)
		}
		c.counters[counter.Name] = true
	}
	for _, f := range c.program.Flowtables {
		c.flowtables[f.Name] = true
	}
	based := map[string]bool{}
	for _, h := range c.program.Hooks {
		switch {
		case c.chains[h.Chain] == nil:
			c.fail("hook %s has no chain %s", h.Kind, h.Chain)
		case based[h.Chain]:
			c.fail("chain %s has two hooks", h.Chain)
		case h.Default != Accept && h.Default != Drop:
			c.fail("hook %s of chain %s has the default %q", h.Kind, h.Chain, h.Default)
		}
		based[h.Chain] = true
	}
}

func (c *checker) rule(chain *Chain, n int, r *Rule) {
	where := fmt.Sprintf("chain %s rule %d", chain.Name, n+1)
	if len(r.Actions) == 0 {
		c.fail("%s does nothing", where)
	}
	for _, m := range r.Match {
		c.condition(where, m)
	}
	for i, a := range r.Actions {
		if EffectOf(a).Ends && i != len(r.Actions)-1 {
			c.fail("%s has an action behind its verdict", where)
		}
		c.action(where, a)
	}
}

func (c *checker) condition(where string, m Condition) {
	used := 0
	for _, is := range []bool{len(m.Names) > 0, len(m.Numbers) > 0, len(m.Addresses) > 0, m.Set != "", m.Text != ""} {
		if is {
			used++
		}
	}
	if used != 1 {
		c.fail("%s: condition on %s has %d kinds of value, not one", where, m.Field, used)
	}
	for _, n := range m.Names {
		if set, followed := FollowedName(n); followed && c.sets[set] == nil {
			c.fail("%s: no set %s", where, set)
		}
	}
	if m.Set == "" {
		return
	}
	set := c.sets[m.Set]
	if set == nil {
		c.fail("%s: no set %s", where, m.Set)
		return
	}
	if keys := max(1, len(m.SetKey)); keys != len(set.Key) {
		c.fail("%s: set %s has %d keys but is looked up with %d", where, m.Set, len(set.Key), keys)
	}
}

func (c *checker) action(where string, a Action) {
	e := EffectOf(a)
	leads := e.Verdict && !e.Plain() || e.Goes != ""
	if chain := e.Calls + e.Goes; leads && c.chains[chain] == nil {
		c.fail("%s: no chain %s", where, chain)
	}
	for _, id := range slices.Concat(e.Fills, e.Asks) {
		if c.sets[id] == nil {
			c.fail("%s: no set %s", where, id)
		}
	}
	for _, name := range []string{e.Counts, e.CountsFull} {
		if name != "" && !c.counters[name] {
			c.fail("%s: no counter %s", where, name)
		}
	}
	if e.Map != "" {
		c.verdictMap(where, e)
	}
	if e.Flowtable != "" && !c.flowtables[e.Flowtable] {
		c.fail("%s: no flowtable %s", where, e.Flowtable)
	}
	if len(e.Fills) == 1 && !e.Bounds {
		if s := c.sets[e.Fills[0]]; s != nil && len(e.Reads) != len(s.Key) {
			c.fail("%s: set %s has %d keys and is given %d", where, s.ID, len(s.Key), len(e.Reads))
		}
	}
	if l, is := a.(Limit); is && (l.Rate.Packets == 0 || l.Rate.Per == 0 || l.Rate.Burst == 0) {
		c.fail("%s: limit %s is zero", where, l.Name)
	}
}

// verdictMap holds an action to the map that it asks.
func (c *checker) verdictMap(where string, e Effect) {
	set := c.sets[e.Map]
	switch {
	case set == nil:
		c.fail("%s: no set %s", where, e.Map)
	case !set.Verdicts:
		c.fail("%s: set %s is not a verdict map", where, e.Map)
	case len(e.Reads) != len(set.Key):
		c.fail("%s: set %s has %d keys but is looked up with %d", where, e.Map, len(set.Key), len(e.Reads))
	}
}

// elements holds the elements of a set to its key.
func (c *checker) elements(s *Set) {
	for _, e := range s.Elements {
		if len(e.Parts) != len(s.Key) {
			c.fail("set %s: an element has %d parts, the key has %d", s.ID, len(e.Parts), len(s.Key))
			return
		}
		if (e.Verdict != nil) != s.Verdicts {
			c.fail("set %s: an element has a verdict or lacks one", s.ID)
			return
		}
		if e.Counter != "" && !s.Counters {
			c.fail("set %s: an element has the counter %s and the set does not count", s.ID, e.Counter)
			return
		}
		if e.Counter != "" && !c.counters[e.Counter] {
			c.fail("set %s: no counter %s", s.ID, e.Counter)
		}
		if e.Verdict == nil {
			continue
		}
		v := EffectOf(e.Verdict)
		chain := v.Calls + v.Goes
		switch {
		case !v.Verdict:
			c.fail("set %s: %s is not a verdict for an element", s.ID, ActionText(e.Verdict))
		case !v.Plain() && c.chains[chain] == nil:
			c.fail("set %s: no chain %s", s.ID, chain)
		}
	}
}

// Leads gives the chains that an action may go on in.
func (p *Program) Leads(a Action) []string {
	e := EffectOf(a)
	var out []string
	for _, chain := range []string{e.Calls, e.Goes} {
		if chain != "" {
			out = append(out, chain)
		}
	}
	if e.Map == "" {
		return out
	}
	if set := p.Set(e.Map); set != nil {
		for _, element := range set.Elements {
			v := EffectOf(element.Verdict)
			if chain := v.Calls + v.Goes; chain != "" && !slices.Contains(out, chain) {
				out = append(out, chain)
			}
		}
	}
	return out
}

// reach walks the jumps from a chain; the kernel refuses loops too.
func (c *checker) reach(name string, path []string) {
	if c.done == nil {
		c.done = map[string]bool{}
	}
	if slices.Contains(path, name) {
		c.fail("chain %s reaches itself", name)
		return
	}
	if c.done[name] || c.chains[name] == nil {
		return
	}
	for _, r := range c.chains[name].Rules {
		for _, a := range r.Actions {
			for _, chain := range c.program.Leads(a) {
				c.reach(chain, append(path, name))
			}
		}
	}
	c.done[name] = true
}
