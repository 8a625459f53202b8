package peers

import (
	"fmt"
	"path/filepath"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/importer"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reach"
)

// TestImportedLetsInWhatThePolicyDoes: what is read of a peer's rules lets in the same new
// connections as the program of the policy, for all packets of TCP and UDP.
func TestImportedLetsInWhatThePolicyDoes(t *testing.T) {
	measure.Require(t)
	net := testnet.New(t)
	random := testseed.Rand(t)
	for round := range 3 {
		g := &generator{Rand: random}
		text := g.policy()
		r := resolved(t, text)
		own := compiled(t, r)
		for i, name := range append([]string{"nftables-linear", "iptables-linear (iptables-legacy)"}, byHand...) {
			t.Run(name, func(t *testing.T) {
				p, err := Named(name)
				if err != nil {
					t.Fatal(err)
				}
				testnet.Require(t, p[0].Needs()...)
				l, err := measure.NewLab(net, fmt.Sprintf("all%d-%d", round, i))
				if err != nil {
					t.Fatal(err)
				}
				if err := p[0].Load(t.Context(), l.Namespace, FromPolicy(r)); err != nil {
					t.Fatal(err)
				}
				read := imported(t, l)
				whole(t, read)
				sameLetIn(t, own, read, text)
			})
		}
	}
}

func compiled(t *testing.T, r *resolve.Resolved) *program.Program {
	t.Helper()
	p, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := optimize.Run(p, optimize.Options{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// whole says that nothing is left out of what is read.
func whole(t *testing.T, read []*importer.Ruleset) {
	t.Helper()
	for _, r := range read {
		for _, u := range r.Unlifted {
			t.Errorf("of %s %s: %+v", r.Tool, r.Family, u)
		}
	}
}

func sameLetIn(t *testing.T, own *program.Program, read []*importer.Ruleset, text string) {
	t.Helper()
	programs := []*program.Program{own}
	for _, r := range read {
		programs = append(programs, r.Program)
	}
	var here addrset.Builder
	for _, p := range lab.Local {
		here.AddPrefix(p)
	}
	from, to := measure.Usable(addrset.All()), here.Set()
	for _, family := range []uint64{4, 6} {
		q := reach.Question{Way: reach.In, States: []packet.State{packet.New}, From: &from, To: &to}
		for _, protocol := range []uint64{packet.TCP, packet.UDP} {
			q.Match = append(q.Match, []program.Condition{
				{Field: program.Family, Numbers: []program.NumberRange{{From: family, To: family}}},
				{Field: program.Protocol, Numbers: []program.NumberRange{{From: protocol, To: protocol}}},
				{Field: program.InInterface, Names: []string{"eth0"}},
				{Field: program.SourceType, Names: []string{"unicast"}},
				{Field: program.Status, Not: true, Names: []string{"dnat"}}, // published by others
			})
		}
		u := reach.NewUniverse(reach.Options{Questions: []reach.Question{q}, Own: to, Now: true}, programs...)
		all := u.Unbanned(u.Unlimited(u.Region(q)))
		policy, rules := u.And(all, u.Allowed(own, reach.In)), all
		for _, r := range read {
			if of := map[string]uint64{"ip": 4, "ip6": 6}[r.Family]; of == family || of == 0 {
				rules = u.And(rules, u.Allowed(r.Program, reach.In))
			}
		}
		if more := u.Minus(policy, rules); !u.Empty(more) {
			t.Errorf("the policy alone lets in %s\n%s", reach.Describe(u.Witness(reach.In, more)), text)
		}
		if more := u.Minus(rules, policy); !u.Empty(more) {
			t.Errorf("what is read alone lets in %s\n%s", reach.Describe(u.Witness(reach.In, more)), text)
		}
	}
}

// TestImportedExamples is the same of the examples by hand, as far as limits let packets
// through.
func TestImportedExamples(t *testing.T) {
	measure.Require(t)
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	net := testnet.New(t)
	for i, file := range files {
		example := filepath.Base(filepath.Dir(file))
		for j, name := range byHand {
			t.Run(example+"/"+name, func(t *testing.T) {
				tree, err := policy.Load(file)
				if err != nil {
					t.Fatal(err)
				}
				r, err := resolve.Resolve(tree, resolve.Options{Facts: lab})
				if err != nil {
					t.Skipf("it cannot be resolved here: %v", err)
				}
				p, err := Named(name)
				if err != nil {
					t.Fatal(err)
				}
				testnet.Require(t, p[0].Needs()...)
				l, err := measure.NewLab(net, fmt.Sprintf("example%d-%d", i, j))
				if err != nil {
					t.Fatal(err)
				}
				if err := p[0].Load(t.Context(), l.Namespace, FromPolicy(r)); err != nil {
					t.Skipf("the peer does not say it: %v", err)
				}
				sameLetIn(t, compiled(t, r), imported(t, l), "")
			})
		}
	}
}
