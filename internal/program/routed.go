package program

import "slices"

// BehindRouting is the program with the bans that it asks before tracking asked where
// routing has led a packet, for whoever tells packets by that and by how they are rewritten:
// what is refused earlier has neither.
func (p *Program) BehindRouting() *Program {
	raw := p.Base(Prerouting, Raw)
	if raw == nil {
		return p
	}
	var bans, rest []Rule
	for _, r := range raw.Rules {
		switch r.Stage {
		case StageBan, StageBanFlows:
			bans = append(bans, r)
		case StageFlow: // goes past them
		default:
			rest = append(rest, r)
		}
	}
	if len(bans) == 0 {
		return p
	}
	out := *p
	out.Hooks, out.Chains = slices.Clone(p.Hooks), slices.Clone(p.Chains)
	out.Chain(raw.Name).Rules = rest
	for _, hook := range []HookKind{Input, Forward} {
		if out.Base(hook, Filter) == nil {
			name := string(hook) + "_bans"
			out.Hooks = append(out.Hooks, Hook{Kind: hook, Phase: Filter, Default: Accept, Chain: name})
			out.Chains = append(out.Chains, Chain{Name: name})
		}
		chain := out.Base(hook, Filter)
		chain.Rules = slices.Concat(bans, chain.Rules)
	}
	return &out
}
