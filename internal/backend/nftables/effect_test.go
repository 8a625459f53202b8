package nftables

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/program"
)

// oneOfEach is an action of every kind that this backend lowers by itself.
func oneOfEach() []program.Action {
	address, prefix := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("192.0.2.0/28")
	rate := perSecond(20, 20)
	return []program.Action{
		program.Accept, program.Drop, program.Reject, program.Return,
		program.Jump{Chain: "sub"},
		program.Goto{Chain: "sub"},
		program.VerdictMap{Set: "ports", Key: []program.Field{program.Port}},
		program.NoTrack{},
		program.Count{Counter: "c_one"},
		program.Log{Prefix: "x"},
		program.Limit{Name: "lim", Rate: rate},
		program.Limit{Name: "lim", Rate: rate, Per: program.PerSource, Table: "limits"},
		program.Limit{Name: "lim", Rate: rate, Per: program.PerSource, Table: "limits", Ban: "bans", BanTimeout: 1000},
		program.ConnectionLimit{Name: "con", Max: 20},
		program.ConnectionLimit{Name: "con", Max: 20, Per: program.PerSource, Table: "connections"},
		program.SetAdd{Set: "bans", Key: program.PerSource, Timeout: 1000},
		program.SetAdd{Set: "bans", Key: program.PerSource, Timeout: 1000, Once: true},
		program.SetLabel{Bit: 127},
		program.SetMark{Value: 16},
		program.SetMark{Value: 16, Mask: 0xff},
		program.DNAT{To: address, Port: 80},
		program.DNATPrefix{From: prefix, To: prefix},
		program.Redirect{Port: 80},
		program.SNAT{To: address},
		program.SNATPrefix{From: prefix, To: prefix},
		program.Masquerade{},
		program.MapSource{From: prefix, To: prefix},
		program.MapDestination{From: prefix, To: prefix},
		program.ClampMSS{},
		program.Offload{Flowtable: "fast"},
	}
}

// TestEffectsAreThoseOfStatements holds what package program says of an action, whether
// it ends its rule and whether it may, to the statements that the kernel runs for it.
func TestEffectsAreThoseOfStatements(t *testing.T) {
	for _, action := range oneOfEach() {
		text := program.ActionText(action)
		p := construct{name: text, match: conditions{protocolIs(6)}, actions: actions{action}}.program()
		p.Flowtables = []program.Flowtable{{Name: "fast", Devices: []string{"lo"}}}
		p.Sets = append(p.Sets, program.Set{
			ID: "ports", Key: []program.Field{program.Port}, Life: program.Static, Verdicts: true,
			Elements: []program.Element{{Parts: []program.Value{{Numbers: program.NumberRange{From: 7, To: 7}}}, Verdict: program.Drop}},
		})
		tree := mustLower(t, p).Tree
		ends, may := false, false
		for _, r := range tree.chain("tried").Rules {
			for _, s := range r.Statements {
				if called := tree.chain(s.Name); s.Kind == Jump && s.Name != "sub" {
					may = may || slices.ContainsFunc(called.Rules, func(r Rule) bool { return slices.ContainsFunc(r.Statements, Statement.gates) })
				}
				ends, may = ends || s.ends(), may || s.Kind != Match && s.gates()
			}
		}
		if e := program.EffectOf(action); e.Ends != ends {
			t.Errorf("%s ends its rule: %v in program, %v as statements", text, e.Ends, ends)
		} else if said := e.Gates || len(e.Fills) > 0 || e.Map != ""; said != may {
			t.Errorf("%s may keep a packet from what follows: %v in program, %v as statements", text, said, may)
		}
	}
}

// TestChainsThatRouteAgain: a chain at output is of the type that asks the routing table
// again where it changes what that looks at, and of no other: a chain of type route
// pays for a comparison with each packet (nf_route_table_hook).
func TestChainsThatRouteAgain(t *testing.T) {
	for _, action := range oneOfEach() {
		e := program.EffectOf(action)
		if e.Calls != "" || e.Goes != "" || e.Map != "" || e.Flowtable != "" || e.Ends && e.Rewrites.Field != "" {
			continue // other chains do it, or it is of other hooks
		}
		want := "filter"
		switch action.(type) {
		case program.SetMark, program.MapSource, program.MapDestination:
			want = "route"
		}
		for kind, want := range map[program.HookKind]string{program.Output: want, program.Prerouting: "filter"} {
			p := construct{kind: kind, phase: program.Raw, match: conditions{protocolIs(6)}, actions: actions{action}}.program()
			if got := mustLower(t, p).Tree.chain("tried").Base.Type; got != want {
				t.Errorf("%s at %s: a chain of type %s, want %s", program.ActionText(action), kind, got, want)
			}
		}
	}
}

// TestChanges: what was asked of a packet is asked again behind an action only where
// that may have changed it.
func TestChanges(t *testing.T) {
	fields := []program.Field{program.Family, program.Source, program.Destination, program.Port, program.State, program.Status, program.Mark, program.Opaque}
	for text, want := range map[string]struct {
		action  program.Action
		changes []program.Field
	}{
		"notrack": {program.NoTrack{}, []program.Field{program.State, program.Status}},
		"mark":    {program.SetMark{Value: 1}, []program.Field{program.Mark}},
		"label":   {program.SetLabel{Bit: 1}, []program.Field{program.Status}},
		"source":  {program.MapSource{}, []program.Field{program.Source}},
		"to":      {program.MapDestination{}, []program.Field{program.Destination}},
		"jump":    {program.Jump{Chain: "sub"}, fields[1:]},
		"count":   {program.Count{Counter: "c_one"}, nil},
		"clamp":   {program.ClampMSS{}, []program.Field{program.Opaque}},
	} {
		var got []program.Field
		for _, f := range fields {
			alone, together := changes(want.action, &program.Condition{Field: f}), changes(want.action, &program.Condition{Field: program.Protocol, SetKey: []program.Field{f}})
			if alone {
				got = append(got, f)
			}
			if alone != together && text != "jump" {
				t.Errorf("%s and a set keyed by %s: %v, and alone %v", text, f, together, alone)
			}
		}
		if !slices.Equal(got, want.changes) {
			t.Errorf("%s changes %v, want %v", text, got, want.changes)
		}
	}
}
