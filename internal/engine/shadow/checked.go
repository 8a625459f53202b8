package shadow

import (
	"fmt"

	"sluice/internal/program"
)

// Checked says why a program must not be loaded as a shadow: it is not well formed,
// or could do more to a packet than count it and let it go on. It looks at every
// chain, whether a packet reaches it or not, and at the contents of verdict maps.
func Checked(p *program.Program) error {
	if err := p.Check(); err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	if p.Owner != Owner || !p.CountsOnly {
		return fmt.Errorf("shadow: the program belongs to %q and is not one that only counts", p.Owner)
	}
	if len(p.Flowtables) > 0 || len(p.Sysctls) > 0 {
		return fmt.Errorf("shadow: the program has flowtables or sysctls")
	}
	for _, h := range p.Hooks {
		if h.Default != program.Accept || h.Phase != program.Watching && h.Phase != program.Behind {
			return fmt.Errorf("shadow: chain %s at %s %s has the default %s", h.Chain, h.Kind, h.Phase, h.Default)
		}
	}
	for i := range p.Chains {
		for _, r := range p.Chains[i].Rules {
			for _, m := range r.Match {
				if m.Field == program.Opaque {
					return fmt.Errorf("shadow: chain %s has text that nobody checks: %s", p.Chains[i].Name, m.Text)
				}
			}
			for _, a := range r.Actions {
				if err := checkedAction(p, a); err != nil {
					return fmt.Errorf("shadow: chain %s: %w", p.Chains[i].Name, err)
				}
			}
		}
	}
	return nil
}

func checkedAction(p *program.Program, a program.Action) error {
	no := fmt.Errorf("%s is more than counting", program.ActionText(a))
	switch a := a.(type) {
	case program.Count, program.SetAdd, program.Jump, program.Goto:
		return nil
	case program.Verdict:
		if a == program.Accept || a == program.Return {
			return nil
		}
	case program.Limit:
		if a.Ban == "" || a.Over != "" {
			return nil
		}
	case program.VerdictMap:
		set := p.Set(a.Set)
		for _, e := range set.Elements {
			if err := checkedAction(p, e.Verdict); err != nil {
				return err
			}
		}
		return nil
	}
	return no
}
