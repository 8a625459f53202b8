package optimize

import (
	"slices"

	"sluice/internal/program"
)

// banStage moves the bans of the filter chains to the raw chains before
// connection tracking. Behind it a destination may be rewritten, by this
// program or another tool's, so forward goes on asking for packets of which
// that is true, and output does where this program rewrites there.
func banStage(w *work) {
	p := w.Program
	in, fromInput := takeBan(p, program.Input)
	_, fromForward := takeBan(p, program.Forward)
	out, fromOutput := takeBan(p, program.Output)
	if !fromInput || !fromForward || !fromOutput {
		return
	}
	hoist(p, program.Prerouting, "prerouting_raw", program.InInterface, in)
	hoist(p, program.Output, "output_raw", program.OutInterface, out)
	later := program.Rule{
		Stage: program.StageBan, Actions: out.Actions, Origin: out.Origin,
		Match:   []program.Condition{{Field: program.Status, Names: []string{"dnat"}}},
		Comment: "the destination was rewritten since the bans were asked",
	}
	forward := p.Base(program.Forward, program.Filter)
	forward.Rules = append(forward.Rules, later)
	if mapsDestination(p) {
		unseen := later
		unseen.Match = []program.Condition{{Field: program.State, Names: []string{"untracked"}}}
		forward.Rules = append(forward.Rules, unseen)
	}
	if p.Base(program.Output, program.NAT) != nil {
		output := p.Base(program.Output, program.Filter)
		output.Rules = append(output.Rules, later)
	}
}

// mapsDestination says whether a destination is rewritten without state, which
// no status tells of later.
func mapsDestination(p *program.Program) bool {
	for _, chain := range p.Chains {
		for _, r := range chain.Rules {
			for _, a := range r.Actions {
				if _, is := a.(program.MapDestination); is {
					return true
				}
			}
		}
	}
	return false
}

// takeBan takes the rule that asks the bans out of a filter chain.
func takeBan(p *program.Program, hook program.HookKind) (program.Rule, bool) {
	chain := p.Base(hook, program.Filter)
	if chain == nil {
		return program.Rule{}, false
	}
	i := slices.IndexFunc(chain.Rules, func(r program.Rule) bool { return r.Stage == program.StageBan })
	if i < 0 {
		return program.Rule{}, false
	}
	ban := chain.Rules[i]
	chain.Rules = slices.Delete(chain.Rules, i, i+1)
	return ban, true
}

// hoist asks a ban in a raw chain, of everything but loopback.
func hoist(p *program.Program, kind program.HookKind, name string, device program.Field, ban program.Rule) {
	if p.Base(kind, program.Raw) == nil {
		p.Hooks = append(p.Hooks, program.Hook{Kind: kind, Phase: program.Raw, Default: program.Accept, Chain: name})
		p.Chains = append(p.Chains, program.Chain{Name: name, Comment: "before connection tracking"})
	}
	chain := p.Base(kind, program.Raw)
	ban.Match = append([]program.Condition{{Field: device, Not: true, Names: []string{"lo"}}}, ban.Match...)
	chain.Rules = append(chain.Rules, ban)
}
