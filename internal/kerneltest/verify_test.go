package kerneltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sluice/internal/addrset"
	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/compile"
	"sluice/internal/kernel/nft"
	"sluice/internal/optimize"
	"sluice/internal/program"
	"sluice/internal/resolve"
	"sluice/internal/testnet"
	"sluice/internal/verify"
	"sluice/internal/wrongpass"
)

// Random policies are lowered and raised again: what comes back is proved equal to
// what was meant, without a kernel and through one.

// both compiles a policy with all passes, and with those alone that it needs.
func both(t *testing.T, r *resolve.Resolved) (full, meant *program.Program) {
	t.Helper()
	var needless []string
	for _, pass := range optimize.Passes {
		if !pass.Required {
			needless = append(needless, pass.Name)
		}
	}
	for p, without := range map[**program.Program][]string{&full: nil, &meant: needless} {
		var err error
		if *p, err = compile.Compile(r); err == nil {
			err = optimize.Run(*p, optimize.Options{Without: without})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return full, meant
}

// provenAs holds a state against a program.
func provenAs(t *testing.T, meant *program.Program, have backend.State) *verify.Proof {
	t.Helper()
	raiser := nftables.New().(backend.Raiser)
	raised, err := raiser.Raise(have)
	if err != nil {
		t.Fatal(err)
	}
	as, err := raiser.Meant(meant, capabilities(), have, backend.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	proof, err := verify.Prove(as, raised, addrset.Set{})
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
			fmt.Fprintf(&b, "%s %s\n  meant  %+v\n  kernel %+v\n  all of %s\n", d.Way, d.Packet, d.Meant, d.Kernel, d.About)
		}
	}
	return b.String()
}

// loadable is an artifact that says what the kernel will hold.
type loadable interface{ Loaded() backend.State }

func TestRandomPoliciesAreRaised(t *testing.T) {
	seed := seedOf(t)
	facts := yardFacts()
	caught := map[string]int{}
	for round := range 60 {
		r := &drafter{Rand: rand.New(rand.NewPCG(seed, uint64(round)))}
		size, _ := scaleOf(r.Rand, round)
		d := r.make(size)
		resolved, _ := mend(t, d, facts)
		full, meant := both(t, resolved)
		artifact, err := nftables.New().Lower(full, capabilities())
		if err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
		proof := provenAs(t, meant, artifact.(loadable).Loaded())
		if !proof.Proved || proof.Rules == 0 {
			t.Fatalf("round %d: %s\n%s\n%s", round, whyNot(proof), d, cut(artifact.Text()))
		}
		if round%4 != 0 || size.elements > 0 {
			continue
		}
		for _, wrong := range wrongpass.Passes {
			broken, _ := both(t, resolved)
			if !wrong.Run(broken) {
				continue
			}
			artifact, err := nftables.New().Lower(broken, capabilities())
			if err != nil {
				t.Fatal(err)
			}
			if !provenAs(t, meant, artifact.(loadable).Loaded()).Proved {
				caught[wrong.Name]++
			}
		}
	}
	for _, wrong := range wrongpass.Passes {
		if caught[wrong.Name] == 0 {
			t.Errorf("the wrong pass %s is never found", wrong.Name)
		}
	}
}

func TestRandomPoliciesAreReadBack(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.NftNAT)
	seed := seedOf(t)
	n := testnet.New(t)
	here, far := n.Unnamed("host"), n.Unnamed("far")
	for _, d := range yardDevices {
		n.Join(testnet.End{In: here, Device: d.name, Addresses: d.addresses}, testnet.End{In: far, Device: d.name})
	}
	facts := yardFacts()
	b := nftables.New()
	for round := range 12 {
		r := &drafter{Rand: rand.New(rand.NewPCG(seed, uint64(round)))}
		size, _ := scaleOf(r.Rand, round)
		d := r.make(size)
		resolved, _ := mend(t, d, facts)
		full, meant := both(t, resolved)
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
				if err := step.Take(ctx, nft.Run); err != nil {
					return err
				}
			}
			have, err = b.(backend.Raiser).ReadWhole(ctx)
			return err
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
		proof := provenAs(t, meant, have)
		if !proof.Proved || proof.Rules == 0 {
			t.Fatalf("round %d: %s\n%s\n%s", round, whyNot(proof), d, cut(artifact.Text()))
		}
	}
}
