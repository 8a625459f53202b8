package nftables

import (
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// TestKnown: rules are read where the kernel may have changed them itself, where a
// transition left something, and where counters count elsewhere from then on.
func TestKnown(t *testing.T) {
	k := kernelHost(t)
	counting := func(counter, chain string) *program.Program {
		return &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: chain}},
			Chains: []program.Chain{{Name: chain, Rules: []program.Rule{
				{Match: conditions{setOn(program.Source, "some")}, Actions: actions{program.Count{Counter: counter}, program.Drop}},
			}}},
			Sets:     []program.Set{{ID: "some", Key: []program.Field{program.Source}, Life: program.Living, Addresses: addrset.MustParse("192.0.2.1")}},
			Counters: []program.Counter{{Name: counter}},
		}
	}
	holds, want := mustLower(t, counting("one", "input")), mustLower(t, counting("two", "other"))
	known := func(holds, want *artifact) (s *State) {
		t.Helper()
		if err := k.Do(func() error {
			have, err := New().(nftables).Known(t.Context(), holds, want)
			if have != nil {
				s = have.(*State)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	k.load(t, New(), holds)
	if s := known(holds, want); s == nil || !slices.ContainsFunc(s.Tree.Sets, func(k *Set) bool { return k.Len() == 1 }) {
		t.Fatalf("known: %+v", s)
	}
	moved := *want.Tree
	moved.Sets = append(moved.Sets, &Set{Name: "m", Elements: Elements{Counters: map[string]string{"192.0.2.1": "one"}}})
	if known(holds, &artifact{Tree: &moved}) != nil {
		t.Error("a counter becomes that of an element: nothing is read")
	}
	for _, c := range []func(*Tree){
		func(t *Tree) { t.Flowtables = append(t.Flowtables, Flowtable{"fast", []string{"lo"}}) },
		func(t *Tree) {
			t.Chains = append(t.Chains, &Chain{Name: "early", Base: &Base{Type: "filter", Hook: "ingress", Devices: []string{"lo"}, Policy: "accept"}})
		},
		func(t *Tree) { t.Sets = append(t.Sets, &Set{Name: "route", Compared: true}) },
	} {
		of := *holds.Tree
		if c(&of); known(&artifact{Tree: &of}, want) != nil {
			t.Error("what rules name may be another: nothing is read")
		}
	}
	k.MustRun("nft", "add set inet sluice grace/tcp { type inet_proto; flags timeout; }")
	if known(holds, want) != nil {
		t.Error("a transition left a set: nothing is read")
	}
}
