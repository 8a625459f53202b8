package optimize

import (
	"slices"

	"sluice/internal/program"
)

// dropUnused takes out rules about labels that no rule turns on, base chains without
// rules that accept, then chains, sets and counters that nothing asks for.
func dropUnused(p *program.Program) {
	labels := p.Labels()
	for i := range p.Chains {
		p.Chains[i].Rules = slices.DeleteFunc(p.Chains[i].Rules, func(r program.Rule) bool { return r.Unlabelled(labels) })
	}
	p.Hooks = slices.DeleteFunc(p.Hooks, func(h program.Hook) bool {
		return h.Default == program.Accept && len(p.Chain(h.Chain).Rules) == 0
	})
	u := uses(p)
	p.Chains = slices.DeleteFunc(p.Chains, func(c program.Chain) bool { return !u.chains[c.Name] })
	p.Sets = slices.DeleteFunc(p.Sets, func(s program.Set) bool { return !u.sets[s.ID] })
	p.Counters = slices.DeleteFunc(p.Counters, func(c program.Counter) bool { return !u.counters[c.Name] })
}

type used struct {
	chains, sets, counters map[string]bool
	order                  []string // chains in the order in which they were met
}

// uses follows every rule that a packet can meet.
func uses(p *program.Program) used {
	u := used{chains: map[string]bool{}, sets: map[string]bool{}, counters: map[string]bool{}}
	for _, h := range p.Hooks {
		u.follow(p, h.Chain)
	}
	return u
}

func (u *used) follow(p *program.Program, name string) {
	chain := p.Chain(name)
	if chain == nil || u.chains[name] {
		return
	}
	u.chains[name] = true
	u.order = append(u.order, name)
	for _, r := range chain.Rules {
		for _, m := range r.Match {
			u.set(p, m.Set)
			for _, n := range m.Names {
				if set, is := program.FollowedName(n); is {
					u.set(p, set)
				}
			}
		}
		for _, a := range r.Actions {
			for _, next := range p.Leads(a) {
				u.follow(p, next)
			}
			e := program.EffectOf(a)
			u.set(p, e.Map)
			for _, id := range slices.Concat(e.Fills, e.Asks) {
				u.set(p, id)
			}
			u.counters[e.Counts], u.counters[e.CountsFull] = true, true
		}
	}
}

// set notes a set and what its elements count on.
func (u *used) set(p *program.Program, id string) {
	if u.sets[id] {
		return
	}
	u.sets[id] = true
	if s := p.Set(id); s != nil && s.Counters {
		for _, e := range s.Elements {
			u.counters[e.Counter] = true
		}
	}
}
