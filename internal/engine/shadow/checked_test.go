package shadow_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend/nftables"
	"sluice/internal/engine/shadow"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
)

// Whatever does more than count is refused, by the check of the program and once more
// by the backend that makes rules of it.
func TestOnlyCountsIsLoaded(t *testing.T) {
	p := candidates(t)["tracking"].program
	harmless, _ := counting(t, p)
	if err := optimize.Run(harmless, optimize.Options{Without: []string{"base-chains", "terminal"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := nftables.New().Lower(harmless, nil); err != nil {
		t.Fatal(err)
	}
	address, prefix := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("192.0.2.0/28")
	rate := program.Rate{Packets: 1, Per: 1000, Burst: 1}
	for _, a := range []program.Action{
		program.Drop, program.Reject,
		program.NoTrack{},
		program.Log{Prefix: "x", Rate: rate},
		program.Limit{Name: "l", Rate: rate, Per: program.PerSource, Table: "limited", Ban: "banned", BanTimeout: 1000},
		program.ConnectionLimit{Name: "c", Max: 1},
		program.SetMark{Value: 1},
		program.SetLabel{Bit: 127},
		program.DNAT{To: address},
		program.DNATPrefix{From: prefix, To: prefix},
		program.SNAT{To: address},
		program.SNATPrefix{From: prefix, To: prefix},
		program.Masquerade{},
		program.Redirect{},
		program.MapSource{From: prefix, To: prefix},
		program.MapDestination{From: prefix, To: prefix},
		program.ClampMSS{},
		program.Offload{Flowtable: "f"},
		program.VerdictMap{Set: "map", Key: []program.Field{program.Port}},
	} {
		wrong := *harmless
		wrong.Sets = append(slices.Clone(wrong.Sets),
			program.Set{ID: "limited", Key: []program.Field{program.Source}, Life: program.Dynamic, Size: 10},
			program.Set{ID: "banned", Key: []program.Field{program.Source}, Life: program.Dynamic, Size: 10, Timeout: 1000},
			program.Set{
				ID: "map", Key: []program.Field{program.Port}, Life: program.Static, Verdicts: true,
				Elements: []program.Element{{Parts: []program.Value{{Numbers: program.NumberRange{From: 7, To: 7}}}, Verdict: program.Drop}},
			})
		wrong.Chains = slices.Clone(wrong.Chains)
		last := &wrong.Chains[len(wrong.Chains)-1]
		last.Rules = append([]program.Rule{{
			Match:   []program.Condition{{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}}},
			Actions: []program.Action{a},
		}}, last.Rules...)
		text := program.ActionText(a)
		if err := shadow.Checked(&wrong); err == nil {
			t.Errorf("%s passes the check", text)
		}
		if _, isOffload := a.(program.Offload); isOffload {
			continue // without a flowtable there is nothing to lower
		}
		if _, err := nftables.New().Lower(&wrong, nil); err == nil || !strings.Contains(err.Error(), "more than count") {
			t.Errorf("the backend makes rules of %s: %v", text, err)
		}
	}

	for name, change := range map[string]func(p *program.Program){
		"a default that drops":     func(p *program.Program) { p.Hooks[0].Default = program.Drop },
		"a chain of another phase": func(p *program.Program) { p.Hooks[0].Phase = program.Raw },
		"another owner":            func(p *program.Program) { p.Owner = "sluice" },
		"a table that stays":       func(p *program.Program) { p.CountsOnly = false },
		"a sysctl":                 func(p *program.Program) { p.Sysctls = []program.Sysctl{{Name: "x"}} },
		"a flowtable":              func(p *program.Program) { p.Flowtables = []program.Flowtable{{Name: "x"}} },
	} {
		wrong := *harmless
		wrong.Hooks = slices.Clone(wrong.Hooks)
		change(&wrong)
		if err := shadow.Checked(&wrong); err == nil {
			t.Errorf("%s passes the check", name)
		}
	}
}
