package optimize

import (
	"slices"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/system/host"
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
		{"a log of datagrams", true, []program.Rule{rule(program.StageAnswers, logs, protocol(packet.UDP))}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &program.Program{
				Hooks: []program.Hook{
					{Kind: program.Output, Phase: program.Raw, Default: program.Accept, Chain: "output_raw"},
					{Kind: program.Output, Phase: program.Filter, Default: program.Drop, Chain: "output"},
				},
				Chains: []program.Chain{
					{Name: "output_raw", Rules: []program.Rule{rule(program.StageTrack, program.NoTrack{}, protocol(packet.TCP), service)}},
					{Name: "output", Rules: []program.Rule{rule(program.StageLoopback, program.Accept, program.Condition{Field: program.OutInterface, Names: []string{"lo"}})}},
					{Name: "answers", Rules: []program.Rule{rule("", program.Accept, protocol(packet.TCP), service)}},
					{Name: "rules", Rules: []program.Rule{rule("", program.Accept, protocol(packet.TCP), program.Condition{Field: program.Port, Numbers: number(25)})}},
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

// TestOffloadedAside: what hands flows over and what accepts them asks once whether
// they are established.
func TestOffloadedAside(t *testing.T) {
	flow := []program.Condition{{Field: program.State, Names: []string{"established"}}, {Field: program.Protocol, Numbers: []program.NumberRange{{From: packet.TCP, To: packet.TCP}, {From: packet.UDP, To: packet.UDP}}}}
	golden(t, "terminal-offload", "terminal", &program.Program{
		Flowtables: []program.Flowtable{{Name: "fast", Devices: []string{"eth0"}}},
		Hooks:      []program.Hook{{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"}},
		Chains: []program.Chain{
			{Name: "forward", Rules: []program.Rule{
				{Stage: program.StageOffload, Match: flow, Actions: []program.Action{program.Offload{Flowtable: "fast"}}},
				established(),
				{Stage: program.StageInvalid, Match: []program.Condition{{Field: program.State, Names: []string{"invalid"}}}, Actions: []program.Action{program.Drop}},
				{Stage: program.StageRules, Actions: []program.Action{program.Goto{Chain: "rules"}}},
			}},
			{Name: "rules", Rules: []program.Rule{
				{Match: []program.Condition{{Field: program.Protocol, Numbers: number(packet.TCP)}, {Field: program.Port, Numbers: number(80)}}, Actions: []program.Action{program.Accept}},
				{Match: []program.Condition{{Field: program.Protocol, Numbers: number(packet.UDP)}, {Field: program.Port, Numbers: number(53)}}, Actions: []program.Action{program.Accept}},
			}},
		},
	})
}

// TestEstablishedFirst: flows are the first that a base chain with limits per source
// asks for behind bans by command, by as few comparisons as there can be, and loopback is behind them.
func TestEstablishedFirst(t *testing.T) {
	for ports, want := range map[string][]string{
		"tcp/22 limit 6/minute per source":                       {"!port 22"},
		"[tcp/22, tcp/2222] limit 6/minute per source":           {"!port 22", "!port 2222"},
		"tcp/22-23 limit 6/minute per source":                    {"!port 22", "!port 23"},
		"[tcp/22, tcp/2222, tcp/8022] limit 6/minute per source": {"!port 22|2222|8022"},
		"tcp/22-24 limit 6/minute per source":                    {"!port 22-24"},
		"tcp/22":                                                 nil,
	} {
		t.Run(ports, func(t *testing.T) {
			written, err := policy.Parse("policy.yaml", []byte("version: 1\ninput: { default: drop, rules: ['allow "+ports+"', allow tcp/443] }\n"))
			if err != nil {
				t.Fatal(err)
			}
			r, err := resolve.Resolve(written, resolve.Options{Facts: host.Facts{Known: true, EphemeralFrom: 32768, EphemeralTo: 60999}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := compile.Compile(r)
			if err != nil {
				t.Fatal(err)
			}
			proveRun(t, p, nil, map[string]int{})
			rules := slices.DeleteFunc(p.Base(program.Input, program.Filter).Rules, func(r program.Rule) bool { return r.Stage == program.StageBan })
			var asked []string
			for i := range rules[0].Match[2:] {
				asked = append(asked, conditionText(&rules[0].Match[2+i]))
			}
			if !isFlow(rules[0]) || !isFlow(rules[1]) || !slices.Equal(asked, want) {
				t.Errorf("asks %q, want %q", asked, want)
			}
			loopback := slices.IndexFunc(rules, func(r program.Rule) bool { return r.Stage == program.StageLoopback })
			counts := slices.ContainsFunc(rules, func(r program.Rule) bool {
				return slices.Equal(r.Actions, []program.Action{program.Jump{Chain: "input_handshakes"}})
			})
			if loopback < 2 || counts != (want != nil) {
				t.Errorf("loopback is %d, handshakes are counted: %v", loopback, counts)
			}
			if t.Failed() {
				t.Log(p.Text())
			}
		})
	}
}
