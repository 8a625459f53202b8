package program

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

// Labels gives the bits of connections' labels that rules turn on.
func (p *Program) Labels() map[uint8]bool {
	out := map[uint8]bool{}
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			for _, a := range r.Actions {
				if s, is := a.(SetLabel); is {
					out[s.Bit] = true
				}
			}
		}
	}
	return out
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
