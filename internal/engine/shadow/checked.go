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
		return fmt.Errorf("shadow: the program belongs to %q and does not only count", p.Owner)
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
					return fmt.Errorf("shadow: chain %s has text that cannot be checked: %s", p.Chains[i].Name, m.Text)
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
	e := program.EffectOf(a)
	if !onlyCounts(e) {
		return fmt.Errorf("%s does more than count", program.ActionText(a))
	}
	if e.Map != "" {
		for _, element := range p.Set(e.Map).Elements {
			if err := checkedAction(p, element.Verdict); err != nil {
				return err
			}
		}
	}
	return nil
}

// onlyCounts says that an action counts a packet, notes its source or leads it on, and
// does nothing else. What does nothing that is known here is something else.
func onlyCounts(e program.Effect) bool {
	switch {
	case len(e.Writes) > 0 || e.Rewrites.Field != "" || e.Tracks || e.Bounds && !e.Gates || e.Bans != "" && e.Goes == "":
		return false
	case e.Decides != "":
		return e.Decides == program.Accept || e.Decides == program.Return
	}
	return e.Gates || e.Counts != "" || len(e.Fills) > 0 || e.Calls != "" || e.Goes != "" || e.Map != ""
}
