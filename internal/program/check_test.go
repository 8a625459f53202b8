package program

import (
	"strings"
	"testing"
)

// wellFormed is a program with an action of each kind that names something.
func wellFormed() *Program {
	rate := Rate{Packets: 1, Per: 1000, Burst: 1}
	source := []Field{Source}
	return &Program{
		Hooks: []Hook{{Kind: Input, Phase: Filter, Default: Drop, Chain: "input"}},
		Chains: []Chain{
			{Name: "input", Rules: []Rule{{Actions: []Action{
				Count{Counter: "c"},
				Log{Prefix: "x", Rate: rate},
				Limit{Name: "l", Rate: rate, Per: PerSource, Table: "table", FullCounter: "c", Ban: "banned", NeverBan: "never", Over: "over"},
				ConnectionLimit{Name: "n", Max: 1, Per: PerSource, Table: "table", FullCounter: "c"},
				SetAdd{Set: "banned", Key: PerSource},
				SetAdd{Set: "pairs", Fields: []Field{Source, Port}},
				Offload{Flowtable: "fast"},
				VerdictMap{Set: "map", Key: []Field{Port}},
				Jump{Chain: "sub"},
				Goto{Chain: "over"},
			}}}},
			{Name: "sub", Rules: []Rule{{Actions: []Action{Return}}}},
			{Name: "over", Rules: []Rule{{Actions: []Action{Drop}}}},
		},
		Sets: []Set{
			{ID: "table", Key: source, Life: Dynamic},
			{ID: "banned", Key: source, Life: Dynamic},
			{ID: "never", Key: source},
			{ID: "pairs", Key: []Field{Source, Port}, Life: Dynamic},
			{ID: "map", Key: []Field{Port}, Verdicts: true, Elements: []Element{{Parts: []Value{{Numbers: NumberRange{From: 7, To: 7}}}, Verdict: Goto{Chain: "over"}}}},
		},
		Counters:   []Counter{{Name: "c"}},
		Flowtables: []Flowtable{{Name: "fast"}},
	}
}

// TestCheck does one thing wrong at a time.
func TestCheck(t *testing.T) {
	if err := wellFormed().Check(); err != nil {
		t.Fatalf("a program that is well formed: %v", err)
	}
	rule := func(p *Program) *Rule { return &p.Chains[0].Rules[0] }
	does := func(actions ...Action) func(*Program) { return func(p *Program) { rule(p).Actions = actions } }
	without := func(id string) func(*Program) { return func(p *Program) { p.Set(id).ID = "another" } }
	rate := Rate{Packets: 1, Per: 1000, Burst: 1}
	tests := []struct {
		do   func(p *Program)
		want string
	}{
		{without("table"), "no set table"},
		{without("banned"), "no set banned"},
		{without("never"), "no set never"},
		{without("pairs"), "no set pairs"},
		{without("map"), "no set map"},
		{func(p *Program) { p.Counters = nil }, "no counter c"},
		{func(p *Program) { p.Flowtables = nil }, "no flowtable fast"},
		{does(), "does nothing"},
		{does(Jump{Chain: "nowhere"}), "no chain nowhere"},
		{does(Goto{Chain: "nowhere"}), "no chain nowhere"},
		{does(Limit{Name: "l", Rate: rate, Over: "nowhere"}), "no chain nowhere"},
		{does(Limit{Name: "l", Rate: rate, FullCounter: "other"}), "no counter other"},
		{does(Limit{Name: "l"}), "limit l is zero"},
		{does(Jump{Chain: "input"}), "chain input reaches itself"},
		{does(VerdictMap{Set: "never", Key: []Field{Source}}), "set never is not a verdict map"},
		{does(VerdictMap{Set: "map", Key: []Field{Protocol, Port}}), "set map has 1 keys but is looked up with 2"},
		{does(SetAdd{Set: "banned", Fields: []Field{Source, Port}}), "set banned has 1 keys and is given 2"},
		{does(SetAdd{Set: "pairs", Key: PerSource}), "set pairs has 2 keys and is given 1"},
		{func(p *Program) { p.Set("map").Elements[0].Verdict = Goto{Chain: "nowhere"} }, "set map: no chain nowhere"},
		{func(p *Program) { p.Set("map").Elements[0].Verdict = Goto{Chain: "input"} }, "chain input reaches itself"},
	}
	for _, a := range []Action{
		Accept, Drop, Reject, Return, Goto{Chain: "over"}, DNAT{}, DNATPrefix{}, SNAT{}, SNATPrefix{}, Masquerade{}, Redirect{},
	} {
		tests = append(tests, struct {
			do   func(p *Program)
			want string
		}{does(a, NoTrack{}), "has an action behind its verdict"})
	}
	for _, a := range []Action{NoTrack{}, Count{Counter: "c"}, Log{}, SetLabel{}, SetMark{}, ClampMSS{}, DNAT{}, VerdictMap{Set: "map", Key: []Field{Port}}, Limit{Name: "l", Rate: rate}, MapSource{}} {
		tests = append(tests, struct {
			do   func(p *Program)
			want string
		}{func(p *Program) { p.Set("map").Elements[0].Verdict = a }, "is not a verdict for an element"})
	}
	for _, test := range tests {
		p := wellFormed()
		test.do(p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: want %q, got %v", ActionText(append(rule(p).Actions, Return)[0]), test.want, err)
		}
	}
}
