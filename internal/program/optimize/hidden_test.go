package optimize_test

import (
	"fmt"
	"testing"

	"sluice/internal/program"
	"sluice/internal/program/optimize"
)

// TestHidden: of rules of other tools, those that no packet reaches are told with the rule
// that hides each, in long chains too, and a mark that is written in between is seen.
func TestHidden(t *testing.T) {
	rule := func(action program.Action, match ...program.Condition) program.Rule {
		return program.Rule{Match: match, Actions: []program.Action{action}}
	}
	number := func(f program.Field, n int) program.Condition {
		return program.Condition{Field: f, Numbers: []program.NumberRange{{From: uint64(n), To: uint64(n)}}}
	}
	tcp := number(program.Protocol, 6)
	opaque := program.Condition{Field: program.Opaque, Text: "-m statistic --mode random"}
	var long []program.Rule
	for i := range 7000 {
		long = append(long, rule(program.Accept, tcp, number(program.Port, i)))
	}
	long = append(long, rule(program.Drop, tcp, number(program.Port, 6543)))
	for name, test := range map[string]struct {
		rules []program.Rule
		want  map[int]int
	}{
		"wide":       {[]program.Rule{rule(program.Accept, tcp), rule(program.Drop, tcp, number(program.Port, 1))}, map[int]int{1: 0}},
		"impossible": {[]program.Rule{rule(program.Drop, tcp, number(program.Protocol, 17))}, map[int]int{0: -1}},
		"goes on":    {[]program.Rule{rule(program.Log{}, tcp), rule(program.Drop, tcp)}, nil},
		"chance":     {[]program.Rule{rule(program.Accept, opaque), rule(program.Drop, opaque)}, nil},
		"mark":       {[]program.Rule{rule(program.Drop, number(program.Mark, 1)), rule(program.Drop, tcp, number(program.Mark, 1))}, map[int]int{1: 0}},
		"marked":     {[]program.Rule{rule(program.Drop, number(program.Mark, 1)), rule(program.SetMark{Value: 1}, tcp), rule(program.Drop, tcp, number(program.Mark, 1))}, nil},
		"long":       {long, map[int]int{7000: 6543}},
		"long, wide": {append([]program.Rule{rule(program.Accept, number(program.Port, 5))}, long...), map[int]int{6: 0, 7001: 6544}},
	} {
		p := &program.Program{Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "c"}}, Chains: []program.Chain{{Name: "c", Rules: test.rules}}}
		if got := optimize.Hidden(p)["c"]; fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
