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

// Base gives the base chain of a hook and phase, or nil.
func (p *Program) Base(kind HookKind, phase Phase) *Chain {
	for _, h := range p.Hooks {
		if h.Kind == kind && h.Phase == phase {
			return p.Chain(h.Chain)
		}
	}
	return nil
}
