package verify

import (
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// accepting lets TCP in to a port and drops the rest.
func accepting(port uint64, more ...program.Condition) *program.Program {
	tcp := program.Condition{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}}
	to := program.Condition{Field: program.Port, Numbers: []program.NumberRange{{From: port, To: port}}}
	return &program.Program{
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{{
			Match: append([]program.Condition{tcp, to}, more...), Actions: []program.Action{program.Accept},
			Origin: program.Origin{File: "policy.yaml", Line: 3, Text: "allow"},
		}}}},
	}
}

func prove(t *testing.T, expected *program.Program, r *backend.Lifted) *Proof {
	t.Helper()
	p, err := Prove(t.Context(), expected, r, nil, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProve(t *testing.T) {
	p := prove(t, accepting(22), &backend.Lifted{Program: accepting(22), Rules: 1, Elements: 7, Banned: 2})
	if !p.Proved || p.Rules != 1 || p.Elements != 7 || p.Banned != 2 || p.Classes != 4 {
		t.Errorf("the same: %+v", p)
	}
	p = prove(t, accepting(22), &backend.Lifted{Program: accepting(23)})
	if p.Proved || len(p.Differences) != 2 {
		t.Fatalf("another port: %+v", p)
	}
	for _, d := range p.Differences {
		opened := d.Expected.Verdict == "drop" && strings.HasSuffix(d.Packet, ":23, new") && strings.Contains(d.About, "protocol tcp, port 23") && d.Witness.Port == 23
		closed := d.Kernel.Verdict == "drop" && strings.HasSuffix(d.Packet, ":22, new") && d.Expected.By == "policy.yaml:3 allow" && d.Kernel.By == "the default of input"
		if !opened && !closed {
			t.Errorf("%+v", d)
		}
	}
}

// What is not known is never proved.
func TestNotProved(t *testing.T) {
	unread := backend.Unlifted{Chain: "input", Rule: 1, Text: "queue", Why: "it is not known"}
	p := prove(t, accepting(22), &backend.Lifted{Program: accepting(22), Unlifted: []backend.Unlifted{unread}})
	if p.Proved || len(p.Differences) > 0 || !slices.Contains(p.Unread, unread) {
		t.Errorf("a rule that was not read: %+v", p)
	}
	opaque := program.Condition{Field: program.Opaque, Text: "meta pkttype host"}
	if p := prove(t, accepting(22, opaque), &backend.Lifted{Program: accepting(22, opaque)}); p.Proved || !slices.Contains(p.Opaque, opaque.Text) {
		t.Errorf("a condition that nobody can decide: %+v", p)
	}
	other := accepting(22)
	other.Flowtables = []program.Flowtable{{Name: "fast", Devices: []string{"eth0"}}}
	if p := prove(t, accepting(22), &backend.Lifted{Program: other}); p.Proved || len(p.Differences) != 1 || p.Differences[0].Kernel.By != "flowtable fast of eth0" {
		t.Errorf("another flowtable: %+v", p)
	}
}

// TestTables: a table that forgets sooner lets through more than the limit says.
func TestTables(t *testing.T) {
	with := func(size int, timeout uint64) *program.Program {
		p := accepting(22)
		p.Sets = []program.Set{{ID: "sources", Key: []program.Field{program.Source}, Life: program.Dynamic, Size: size, Timeout: timeout}}
		return p
	}
	if p := prove(t, with(100, 2000), &backend.Lifted{Program: with(100, 2000)}); !p.Proved {
		t.Errorf("the same: %+v", p.Differences)
	}
	for _, other := range []*program.Program{with(1, 2000), with(100, 1000)} {
		if p := prove(t, with(100, 2000), &backend.Lifted{Program: other}); p.Proved {
			t.Error("another table is taken to be the same")
		}
	}
}
