package program

import "slices"

// Chain gives the chain of that name, or nil.
func (p *Program) Chain(name string) *Chain {
	for i := range p.Chains {
		if p.Chains[i].Name == name {
			return &p.Chains[i]
		}
	}
	return nil
}

// Set gives the set of that id, or nil.
func (p *Program) Set(id string) *Set {
	for i := range p.Sets {
		if p.Sets[i].ID == id {
			return &p.Sets[i]
		}
	}
	return nil
}

// Labels gives the bits of connections' labels that rules turn on: rules that a packet
// meets, so that none counts that asks for a bit which no other turns on.
func (p *Program) Labels() map[uint8]bool {
	out := map[uint8]bool{}
	for before := -1; before != len(out); {
		before = len(out)
		seen := map[string]bool{}
		var follow func(chain string)
		follow = func(name string) {
			chain := p.Chain(name)
			if chain == nil || seen[name] {
				return
			}
			seen[name] = true
			for i := range chain.Rules {
				if chain.Rules[i].Unlabelled(out) {
					continue
				}
				for _, a := range chain.Rules[i].Actions {
					if bit, is := LabelBit(EffectOf(a).Labels); is {
						out[bit] = true
					}
					for _, next := range p.Leads(a) {
						follow(next)
					}
				}
			}
		}
		for _, h := range p.Hooks {
			follow(h.Chain)
		}
	}
	return out
}

// Unlabelled says that a rule asks for a label that is not among those turned on.
func (r *Rule) Unlabelled(on map[uint8]bool) bool {
	return slices.ContainsFunc(r.Match, func(c Condition) bool {
		return c.Field == Status && !c.Not && len(c.Names) > 0 && !slices.ContainsFunc(c.Names, func(name string) bool {
			bit, is := LabelBit(name)
			return !is || on[bit]
		})
	})
}

// Untracks says that a rule keeps packets out of connection tracking.
func (r *Rule) Untracks() bool {
	return slices.ContainsFunc(r.Actions, func(a Action) bool { return EffectOf(a).Untracks })
}

// Base gives the base chain of a hook and phase, or nil.
func (p *Program) Base(kind HookKind, phase Phase) *Chain {
	for _, h := range p.Hooks {
		if h.Kind == kind && h.Phase == phase {
			return p.Chain(h.Chain)
		}
	}
	return nil
}
