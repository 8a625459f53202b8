package nftables

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	measuring "sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// laidPolicies are rules that drop by a set, each in another way.
var laidPolicies = []struct {
	name    string
	not     bool
	actions []program.Action
}{
	{"drop", false, []program.Action{program.Drop}},
	{"not, drop", true, []program.Action{program.Drop}},
	{"count and drop", false, []program.Action{program.Count{Counter: "seen"}, program.Drop}},
	{"not, count and drop", true, []program.Action{program.Count{Counter: "seen"}, program.Drop}},
	{"jump", false, []program.Action{program.Jump{Chain: "more"}}},
}

func laidProgram(set addrset.Set, not bool, actions []program.Action) *program.Program {
	in := setOn(program.Source, "served")
	in.Not = not
	return &program.Program{
		Owner:    "sluice",
		Hooks:    []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Counters: []program.Counter{{Name: "seen"}},
		Chains: []program.Chain{
			{Name: "input", Rules: []program.Rule{
				{ID: "served", Match: conditions{protocolIs(17), in}, Actions: actions},
				{ID: "rest", Actions: []program.Action{program.Accept}},
			}},
			{Name: "more", Rules: []program.Rule{{ID: "more", Actions: []program.Action{program.Drop}}}},
		},
		Sets: []program.Set{{ID: "served", Key: []program.Field{program.Source}, Life: program.Static, Addresses: set}},
	}
}

// TestLayoutsInKernel: every layout, in every use, loads, reads back as it was
// meant, and decides each packet as the set does.
func TestLayoutsInKernel(t *testing.T) {
	measuring.Require(t)
	seed := testseed.Of(t)
	for _, family := range families {
		random := rand.New(rand.NewPCG(seed, uint64(family)))
		set := randomSpans(random, family)
		var members, others []netip.Addr
		for _, a := range bounds(spansOf(set, family), family, random) {
			switch address := a.address(family); {
			case !measuring.Usable(addrset.All()).Contains(address):
			case set.Contains(address):
				members = append(members, address)
			default:
				others = append(others, address)
			}
		}
		sources := map[bool]*measuring.Source{}
		flows := map[bool]int{true: len(members), false: len(others)}
		for is, list := range map[bool][]netip.Addr{true: members, false: others} {
			s, err := measuring.Load(measuring.UDP(list, measuring.Target(addrset.Family(family), 9)))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			sources[is] = s
		}
		for i, c := range candidates[family] {
			for j, p := range laidPolicies {
				if testing.Short() && j%2 != i%2 {
					continue
				}
				t.Run(fmt.Sprintf("IPv%d, %s, %s", family, c.name, p.name), func(t *testing.T) {
					lab, err := measuring.NewLab(testnet.New(t), fmt.Sprintf("c%d-%d", i, j))
					if err != nil {
						t.Fatal(err)
					}
					l, err := lowerChoosing(laidProgram(set, p.not, p.actions), everything, &defaults, picking(i))
					if err != nil {
						t.Fatal(err)
					}
					a := &artifact{Format: artifactFormat, Tree: l.tree}
					host := kernel{lab.Namespace}
					for _, s := range steps(a.Tree, &State{}, openings{}, nil) {
						if err := lab.Namespace.Do(func() error { return s.Take(context.Background()) }); err != nil {
							t.Fatalf("%s: %v\n%s", s.Name, err, head(s.Text(), 3000))
						}
					}
					host.holds(t, fmt.Sprintf("seed %d: it reads back otherwise", seed), a)
					if st := steps(a.Tree, host.read(t, true), openings{}, nil); len(st) > 0 {
						t.Errorf("seed %d: loaded, it wants %d steps more: %s", seed, len(st), st[0].Name)
					}
					for is, s := range sources {
						run, err := lab.Inject(t.Context(), s, flows[is])
						if err != nil {
							t.Fatal(err)
						}
						want := 0
						if is == p.not {
							want = run.Packets
						}
						if run.Survived != want {
							t.Errorf("seed %d: %d of %d packets survived, want %d; members: %v", seed, run.Survived, run.Packets, want, is)
						}
					}
				})
			}
		}
	}
}
