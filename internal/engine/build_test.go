package engine_test

import (
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/memory"
	"sluice/internal/backend/nftables"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/system/host"
)

// build goes the whole way of a policy for a host that nothing is known of.
func build(t *testing.T, text string, can backend.Capabilities, o engine.Options) *engine.Built {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o.Sources, o.Unchecked = &engine.Sources{}, true
	built, err := engine.Build(t.Context(), p, host.Facts{}, can, o)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// similar is a policy with rules that the optimizer makes one of.
const similar = `version: 1
input:
  default: drop
  rules:
    - allow tcp/22 from 192.0.2.1
    - allow tcp/22 from 192.0.2.3
    - allow tcp/22 from 192.0.2.5
    - allow tcp/22 from 192.0.2.7
    - allow tcp/22 from 192.0.2.9
    - allow tcp/22 from 192.0.2.11
`

func rules(p *program.Program) (n int) {
	for _, c := range p.Chains {
		n += len(c.Rules)
	}
	return n
}

func TestBuild(t *testing.T) {
	can := backend.Capabilities{backend.SetElementCounters: backend.Yes}
	built := build(t, similar, can, engine.Options{Backend: nftables.New()})
	if rules(built.Expected) <= rules(built.Program) {
		t.Errorf("what is meant has %d rules and what is loaded %d: it was optimized too", rules(built.Expected), rules(built.Program))
	}
	if !strings.Contains(built.Artifact.Text(), "192.0.2.11") {
		t.Errorf("the artifact is not of the policy:\n%s", built.Artifact.Text())
	}

	// The kernel's capabilities reach the optimizer.
	can[backend.SetElementCounters] = backend.No
	apart := build(t, similar, can, engine.Options{Backend: nftables.New()})
	if rules(apart.Program) <= rules(built.Program) {
		t.Errorf("without counters of elements %d rules became %d, as with them", rules(apart.Expected), rules(apart.Program))
	}

	// So do the passes that are left out.
	plain := build(t, similar, can, engine.Options{Backend: nftables.New(), Without: optimize.Optional()})
	if got, want := plain.Program.Text(), plain.Expected.Text(); got != want {
		t.Errorf("with all passes left out:\n%s\nmeant:\n%s", got, want)
	}
}

// TestPassesOfTheBackend: what a backend wants none of is left out beside what the user
// leaves out.
func TestPassesOfTheBackend(t *testing.T) {
	left := func(b backend.Backend, without ...string) (out []string) {
		build(t, similar, nil, engine.Options{Backend: b, Without: without, Compiled: func(p *program.Program, opt *optimize.Options) (*program.Program, error) {
			opt.Report = func(r optimize.Report) {
				if r.LeftOut {
					out = append(out, r.Pass)
				}
			}
			return p, nil
		}})
		return out
	}
	if got := left(nftables.New(), "terminal"); !slices.Equal(got, []string{"terminal"}) {
		t.Errorf("nftables: %q are left out", got)
	}
	if got, want := left(memory.New(), "terminal"), []string{"rules-to-sets", "verdict-maps", "concatenations", "terminal", "dispatch"}; !slices.Equal(got, want) {
		t.Errorf("memory: %q are left out, want %q", got, want)
	}
}
