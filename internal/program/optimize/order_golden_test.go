package optimize

import (
	"fmt"
	"testing"

	"sluice/internal/program"
)

func TestHidden(t *testing.T) {
	golden(t, "hidden", "hidden", inRules(func(p *program.Program) []program.Rule {
		rules := counted(p, 5, func(i int) ([]program.Condition, program.Action) {
			return [][]program.Condition{
				append(tcp(22), from("203.0.113.0/24")),
				append(tcp(22), from("203.0.113.7")),                                            // all of it is in the one above
				{protocols(17), {Field: program.Family, Numbers: number(6)}, from("192.0.2.1")}, // never
				tcp(80),
				append(tcp(80, 443), from("203.0.113.7")), // 443 is left
			}[i], program.Accept
		})
		last := counted(p, 2, func(i int) ([]program.Condition, program.Action) {
			if i == 0 {
				return nil, program.Drop
			}
			return tcp(25), program.Accept // behind the end
		})
		return append(rules, last...)
	}))
}

func TestTerminalEarly(t *testing.T) {
	p := inRules(func(p *program.Program) []program.Rule {
		return counted(p, 1, func(int) ([]program.Condition, program.Action) { return tcp(80), program.Accept })
	})
	accept := []program.Action{program.Accept}
	p.Chains[0].Rules = append([]program.Rule{
		{Stage: program.StageLoopback, Match: []program.Condition{named(program.InInterface, "lo")}, Actions: accept},
		{Stage: program.StageNeeded, Match: []program.Condition{protocols(1, 58)}, Actions: []program.Action{program.Jump{Chain: "icmp"}}},
		{Stage: program.StageState, Match: []program.Condition{named(program.State, "established", "related")}, Actions: accept},
		{Stage: program.StageInvalid, Match: []program.Condition{named(program.State, "invalid")}, Actions: []program.Action{program.Drop}},
		{Stage: program.StageAnswers, Match: []program.Condition{protocols(17), {Field: program.SourcePort, Numbers: number(67)}}, Actions: accept},
	}, p.Chains[0].Rules...)
	p.Chains = append(p.Chains, program.Chain{Name: "icmp", Rules: []program.Rule{{Match: []program.Condition{protocols(1), {Field: program.ICMPType, Numbers: number(3)}}, Actions: accept}}})
	// Story 2: services out of tracking, and nothing that ends their way.
	p.Hooks = append(p.Hooks, program.Hook{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "raw"})
	raw := program.Chain{Name: "raw"}
	for _, port := range []uint64{80, 443, 8080} {
		raw.Rules = append(raw.Rules, program.Rule{Stage: program.StageTrack, Match: tcp(port), Actions: []program.Action{program.NoTrack{}}})
	}
	// This one is counted by the next, and goes on.
	raw.Rules = append(raw.Rules, program.Rule{Stage: program.StageTrack, Match: tcp(25), Actions: []program.Action{program.NoTrack{}}})
	p.Counters = append(p.Counters, program.Counter{Name: "mail"})
	raw.Rules = append(raw.Rules, program.Rule{Stage: program.StageTrack, Match: tcp(25, 465), Actions: []program.Action{program.Count{Counter: "mail"}, program.NoTrack{}}})
	p.Chains = append(p.Chains, raw)
	golden(t, "terminal", "terminal", p)
}

// Port 443 was hit most, and comes with what drops a part of it. Nothing goes
// past what was not counted.
func TestReorder(t *testing.T) {
	p := inRules(func(p *program.Program) []program.Rule {
		rules := counted(p, 5, func(i int) ([]program.Condition, program.Action) {
			if i == 2 {
				return append(tcp(443), from("192.0.2.1")), program.Drop
			}
			return tcp([]uint64{25, 80, 0, 443, 22}[i]), program.Accept
		})
		unknown := program.Rule{Match: tcp(5432), Actions: []program.Action{program.Accept}}
		return append([]program.Rule{unknown}, rules...)
	})
	profile := map[string]uint64{"input_0010": 5, "input_0011": 10, "input_0012": 1, "input_0013": 900, "input_0014": 70}
	goldenWith(t, "reorder", "reorder", p, Options{Profile: profile})
}

func TestDispatch(t *testing.T) {
	golden(t, "dispatch", "dispatch", inRules(func(p *program.Program) []program.Rule {
		var rules []program.Rule
		for i, port := range []uint64{22, 25, 53, 80, 110, 143, 443, 465, 587, 993} {
			rules = append(rules, counted(p, 1, func(int) ([]program.Condition, program.Action) {
				return append(tcp(port), from(fmt.Sprintf("192.0.2.%d", i))), program.Accept
			})...)
		}
		ping := counted(p, 1, func(int) ([]program.Condition, program.Action) {
			return []program.Condition{protocols(1), {Field: program.ICMPType, Numbers: number(8)}}, program.Accept
		})
		two := counted(p, 1, func(int) ([]program.Condition, program.Action) {
			return append(tcp(80, 443), from("203.0.113.0/24")), program.Drop
		})
		last := counted(p, 1, func(int) ([]program.Condition, program.Action) { return nil, program.Drop })
		return append(append(append(rules[:5:5], ping...), rules[5:]...), append(two, last...)...)
	}))
}

func TestBaseChains(t *testing.T) {
	p := inRules(func(p *program.Program) []program.Rule {
		return counted(p, 1, func(int) ([]program.Condition, program.Action) { return tcp(80), program.Accept })
	})
	itself := func(device program.Field) program.Rule {
		return program.Rule{
			Stage:   program.StageLoopback,
			Match:   []program.Condition{named(device, "lo"), prefix(program.Source, "127.0.0.0/8"), prefix(program.Destination, "127.0.0.0/8")},
			Actions: []program.Action{program.NoTrack{}, program.Accept},
		}
	}
	p.Hooks = append(p.Hooks,
		program.Hook{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
		program.Hook{Kind: program.Output, Phase: program.Raw, Default: program.Accept, Chain: "output_raw"},
		program.Hook{Kind: program.Forward, Phase: program.Filter, Default: program.Accept, Chain: "forward"},
	)
	p.Chains = append(p.Chains,
		program.Chain{Name: "prerouting_raw", Rules: []program.Rule{itself(program.InInterface)}},
		program.Chain{Name: "output_raw", Rules: []program.Rule{itself(program.OutInterface), {
			Stage: program.StageLoopback, Match: []program.Condition{named(program.OutInterface, "lo"), protocols(47)},
			Actions: []program.Action{program.NoTrack{}, program.Accept},
		}}},
		program.Chain{Name: "forward", Rules: []program.Rule{{Stage: program.StageState, Match: []program.Condition{named(program.State, "established")}, Actions: []program.Action{program.Accept}}}},
	)
	golden(t, "base-chains", "base-chains", p)
}
