package optimize

import (
	"testing"

	"sluice/internal/program"
)

// TestUntrackedAside: what bypasses tracking has a chain of its own where that saves
// something, and never where a rule would bound something in two places.
func TestUntrackedAside(t *testing.T) {
	state := func(names ...string) program.Condition {
		return program.Condition{Field: program.State, Names: names}
	}
	protocol := func(n uint64) program.Condition {
		return program.Condition{Field: program.Protocol, Numbers: number(n)}
	}
	rule := func(stage program.Stage, a program.Action, match ...program.Condition) program.Rule {
		return program.Rule{Stage: stage, Match: match, Actions: []program.Action{a}}
	}
	logs := program.Log{Prefix: "x", Rate: program.Rate{Packets: 1, Per: 1000, Burst: 5}}
	service := program.Condition{Field: program.SourcePort, Numbers: number(80)}
	for _, test := range []struct {
		name     string
		bypasses bool
		more     []program.Rule
		aside    bool
	}{
		{"a bypass", true, nil, true},
		{"nothing bypasses", false, nil, false},
		{"a log of everything", true, []program.Rule{rule(program.StageAnswers, logs)}, false},
		{"a log of datagrams", true, []program.Rule{rule(program.StageAnswers, logs, protocol(protoUDP))}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &program.Program{
				Hooks: []program.Hook{
					{Kind: program.Output, Phase: program.Raw, Default: program.Accept, Chain: "output_raw"},
					{Kind: program.Output, Phase: program.Filter, Default: program.Drop, Chain: "output"},
				},
				Chains: []program.Chain{
					{Name: "output_raw", Rules: []program.Rule{rule(program.StageTrack, program.NoTrack{}, protocol(protoTCP), service)}},
					{Name: "output", Rules: []program.Rule{rule(program.StageLoopback, program.Accept, program.Condition{Field: program.OutInterface, Names: []string{"lo"}})}},
					{Name: "answers", Rules: []program.Rule{rule("", program.Accept, protocol(protoTCP), service)}},
					{Name: "rules", Rules: []program.Rule{rule("", program.Accept, protocol(protoTCP), program.Condition{Field: program.Port, Numbers: number(25)})}},
				},
			}
			if !test.bypasses {
				p.Chains[0].Rules = nil
			}
			output := p.Chain("output")
			output.Rules = append(output.Rules, test.more...)
			output.Rules = append(output.Rules,
				rule(program.StageState, program.Accept, state("established", "related")),
				rule(program.StageInvalid, program.Drop, state("invalid")),
				rule(program.StageAnswers, program.Jump{Chain: "answers"}, state("untracked")),
				rule(program.StageRules, program.Goto{Chain: "rules"}))
			proveRun(t, p, nil, map[string]int{})
			if got := p.Chain("output_untracked") != nil; got != test.aside {
				t.Errorf("a chain of its own: %v, want %v\n%s", got, test.aside, p.Text())
			}
		})
	}
}
