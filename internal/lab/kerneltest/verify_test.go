package kerneltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/testseed"
	"sluice/internal/engine/verify"
	"sluice/internal/lab/drafts"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/mutants"
	"sluice/internal/program/optimize"
)

// Random policies are lowered and lifted again: what comes back is proved equal to
// what was meant, without a kernel and through one.

// both compiles a policy with all passes, and with those alone that it needs.
func both(t *testing.T, r *resolve.Resolved) (full, expected *program.Program) {
	t.Helper()
	var needless []string
	for _, pass := range optimize.Passes {
		if !pass.Required {
			needless = append(needless, pass.Name)
		}
	}
	for p, without := range map[**program.Program][]string{&full: nil, &expected: needless} {
		var err error
		if *p, err = compile.Compile(r); err == nil {
			err = optimize.Run(*p, optimize.Options{Without: without})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return full, expected
}

// provenAs holds a state against a program.
func provenAs(t *testing.T, expected *program.Program, have backend.State) *verify.Proof {
	t.Helper()
	lifter := nftables.New().(backend.Lifter)
	lifted, err := lifter.Lift(have)
	if err != nil {
		t.Fatal(err)
	}
	as, err := lifter.Expected(expected, capabilities(), have, nil)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := verify.Prove(t.Context(), as, lifted, nil, verify.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// whyNot is the first differences of a proof.
func whyNot(p *verify.Proof) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d differences\n", len(p.Differences))
	for _, u := range p.Unread {
		fmt.Fprintf(&b, "not read: %+v\n", u)
	}
	for i, d := range p.Differences {
		if i < 3 {
			fmt.Fprintf(&b, "%s %s\n  meant  %+v\n  kernel %+v\n  all of %s\n", d.Way, d.Packet, d.Expected, d.Kernel, d.About)
		}
	}
	return b.String()
}

// loadable is an artifact that says what the kernel will hold.
type loadable interface{ Loaded() backend.State }

func TestRandomPoliciesAreLifted(t *testing.T) {
	seed := testseed.Of(t)
	facts := yardFacts()
	for round := range testseed.Rounds(25, 50) {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		size, _ := scaleOf(r, round)
		d := drafts.New(r, size)
		resolved, _ := repair(t, d, facts)
		full, expected := both(t, resolved)
		artifact, err := nftables.New().Lower(full, capabilities())
		if err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
		proof := provenAs(t, expected, artifact.(loadable).Loaded())
		if !proof.Proved || proof.Rules == 0 {
			t.Fatalf("round %d: %s\n%s\n%s", round, whyNot(proof), d, cut(artifact.Text()))
		}
	}
}

// overlapping is a policy in which each wrong pass finds something to spoil.
const overlapping = `version: 1
sets: { office: [203.0.113.0/24, "2001:db8:77::/48"] }
input:
  default: drop
  rules:
    - drop tcp/80 from 198.51.100.0/24
    - allow tcp/80
    - allow ssh from office
    - reject udp/53 from office
    - allow tcp/8443 from 2001:db8:77::/48
output:
  default: allow
  rules:
    - drop tcp/25
`

// TestWrongPassesAreDisproved: a fault of the optimizer is found in what was loaded.
func TestWrongPassesAreDisproved(t *testing.T) {
	resolved, err := resolveFile(policyFile(t, overlapping), yardFacts())
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range mutants.Passes {
		full, expected := both(t, resolved)
		if !wrong.Run(full) {
			t.Errorf("%s finds nothing to do", wrong.Name)
		}
		artifact, err := nftables.New().Lower(full, capabilities())
		if err != nil {
			t.Fatal(err)
		}
		if proof := provenAs(t, expected, artifact.(loadable).Loaded()); proof.Proved || len(proof.Differences) == 0 {
			t.Errorf("%s is not found", wrong.Name)
		}
	}
}

func TestRandomPoliciesAreReadBack(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.NftNAT)
	seed := testseed.Of(t)
	n := testnet.New(t)
	here, far := n.Unnamed("host"), n.Unnamed("far")
	for _, d := range yardDevices {
		n.Join(testnet.End{In: here, Device: d.name, Addresses: d.addresses}, testnet.End{In: far, Device: d.name})
	}
	facts := yardFacts()
	b := nftables.New()
	for round := range testseed.Rounds(7, 12) {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		size, _ := scaleOf(r, round)
		d := drafts.New(r, size)
		resolved, _ := repair(t, d, facts)
		full, expected := both(t, resolved)
		artifact, err := b.Lower(full, capabilities())
		if err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
		var have backend.State
		err = here.Do(func() error {
			ctx := context.Background()
			before, err := b.Read(ctx, true)
			if err != nil {
				return err
			}
			steps, err := b.Steps(artifact, before)
			if err != nil {
				return err
			}
			for _, step := range steps {
				if err := step.Take(ctx); err != nil {
					return err
				}
			}
			have, err = b.(backend.Lifter).ReadWhole(ctx, nil)
			return err
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
		proof := provenAs(t, expected, have)
		if !proof.Proved || proof.Rules == 0 {
			t.Fatalf("round %d: %s\n%s\n%s", round, whyNot(proof), d, cut(artifact.Text()))
		}
	}
}
