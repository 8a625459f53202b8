package optimize

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// proveEqual proves that two programs treat every packet alike, in verdict,
// rewriting, tracking, counters, logs and limits.
func proveEqual(t *testing.T, pass string, before, after *program.Program) {
	t.Helper()
	a, b := copyOf(before), copyOf(after)
	if pass == "ban-stage" {
		for _, p := range []*program.Program{a, b} {
			oneBanCounter(p)
			rewriteUnseen(p)
		}
	}
	for _, d := range differ(a, b) {
		t.Errorf("pass %s: %s", pass, d)
	}
	if t.Failed() {
		t.Fatalf("before:\n%s\nafter:\n%s", before.Text(), after.Text())
	}
}

// oneBanCounter makes one counter of those of all bans: which of two bans of one
// address counts a packet is left to the order in which they are asked.
func oneBanCounter(p *program.Program) {
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			for k, a := range p.Chains[i].Rules[j].Actions {
				if c, is := a.(program.Count); is && strings.HasPrefix(c.Counter, "ban_") {
					p.Chains[i].Rules[j].Actions[k] = program.Count{Counter: "ban"}
				}
			}
		}
	}
}

// rewriteUnseen takes out what is counted, and of segment sizes, before bans were asked
// and is not any more: what is banned gets no further than prerouting.
func rewriteUnseen(p *program.Program) {
	nat := map[string]bool{}
	if base := p.Base(program.Prerouting, program.NAT); base != nil {
		nat[base.Name] = true
		for _, r := range base.Rules {
			for _, a := range r.Actions {
				nat[program.EffectOf(a).Calls] = true
			}
		}
	}
	for i := range p.Chains {
		c := &p.Chains[i]
		for j := range c.Rules {
			if r := &c.Rules[j]; nat[c.Name] || r.Stage == program.StageRewrite {
				r.Actions = slices.DeleteFunc(slices.Clone(r.Actions), func(a program.Action) bool {
					return program.EffectOf(a).Counts != "" || a == program.Action(program.ClampMSS{})
				})
			}
		}
	}
}

// differ compares two programs of which not all passes may have run yet.
func differ(before, after *program.Program) []reach.Difference {
	a, b := copyOf(before), copyOf(after)
	orderStages(a)
	orderStages(b)
	return reach.NewUniverse(reach.Options{Settled: true}, a, b).Compare(a, b, true)
}

// TestPassesExactly proves every pass on random programs, for every packet class.
func TestPassesExactly(t *testing.T) {
	m := newMaker(t)
	did := map[string]int{}
	for range testseed.Rounds(50, 100) {
		p := m.make(1 + m.IntN(100))
		proveRun(t, p, nil, did)
	}
	for _, pass := range []string{"rules-to-sets", "verdict-maps", "concatenations", "factor", "hidden", "terminal", "dispatch"} {
		if did[pass] == 0 {
			t.Errorf("pass %s changed none of the programs", pass)
		}
	}
}

// profile is how many packets each counter has counted.
func (m *maker) profile(p *program.Program) map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range p.Counters {
		out[c.Name] = uint64(m.IntN(1000))
	}
	return out
}

// proveRun runs all passes, by a profile where one is given, and proves each.
func proveRun(t *testing.T, p *program.Program, profile map[string]uint64, did map[string]int) {
	t.Helper()
	before := copyOf(p)
	err := Run(p, Options{Check: true, Profile: profile, After: func(pass string, p *program.Program) {
		if p.Text() == before.Text() {
			return
		}
		did[pass]++
		proveEqual(t, pass, before, p)
		if slices.ContainsFunc(p.Sets, func(s program.Set) bool { return len(s.Ends) > 0 }) {
			proveEqual(t, pass, ended(before), ended(p))
		}
		before = copyOf(p)
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// ended is a program when all of what ends by itself in its sets has ended.
func ended(p *program.Program) *program.Program {
	out := copyOf(p)
	out.Sets = slices.Clone(p.Sets)
	for i := range out.Sets {
		s := &out.Sets[i]
		for _, e := range s.Ends {
			s.Addresses = s.Addresses.Difference(addrset.Of(e.Range))
		}
		s.Ends = nil
	}
	return out
}

// TestExamplesExactly proves every pass on the programs of the examples.
func TestExamplesExactly(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			proveRun(t, compiled(t, file, nil), nil, map[string]int{})
			m, p := newMaker(t), compiled(t, file, nil)
			proveRun(t, p, m.profile(p), map[string]int{})
		})
	}
}

var countries = sync.OnceValues(geo.Snapshot)

func compiled(t *testing.T, file string, added []policy.Addition, over ...policy.Exception) *program.Program {
	t.Helper()
	p, err := policy.Load(file)
	if err == nil {
		p.Add(added)
		err = p.Except(over)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{
		Facts: host.Facts{Known: true, DefaultRoute: []string{"eth0"}, EphemeralFrom: 32768, EphemeralTo: 60999},
		Geo:   countries,
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestProofAgainstEvaluation holds the proof itself to the evaluation of single
// packets, which shares only small parts with it.
func TestProofAgainstEvaluation(t *testing.T) {
	m := newMaker(t)
	for range 60 {
		p := m.make(1 + m.IntN(24))
		orderStages(p)
		u := reach.NewUniverse(reach.Options{}, p)
		outcomes := u.Outcomes(p, reach.In)
		classes := reach.Region(0)
		for _, o := range outcomes {
			if u.And(classes, o.Region) != 0 {
				t.Fatalf("outcome %s has packets of another one", o)
			}
			classes = u.Or(classes, o.Region)
			whole := reach.Region(0)
			for _, c := range u.Classes(reach.In, o.Region) {
				if u.And(whole, c.Region) != 0 {
					t.Errorf("class %+v has packets of another one", c.Fields)
				}
				whole = u.Or(whole, c.Region)
				limited := slices.ContainsFunc(c.Fields, func(v reach.FieldValues) bool { return strings.HasPrefix(string(v.Field), "gate:") })
				if !limited && !u.Holds(c.Region, c.Witness) {
					t.Errorf("the witness of %+v is none: %s", c.Fields, reach.Describe(c.Witness))
				}
			}
			if whole != o.Region {
				t.Errorf("the classes of an outcome are not the outcome")
			}
		}
		for range 100 {
			pkt := m.packet()
			want := reach.Evaluate(p, pkt, reach.In)
			done := slices.DeleteFunc(slices.Clone(want.Done), func(s string) bool { return strings.HasPrefix(s, "mark") })
			slices.Sort(done)
			pkt.State = packet.New
			i := slices.IndexFunc(outcomes, func(o reach.Outcome) bool { return u.Holds(o.Region, pkt) })
			if i < 0 {
				t.Fatalf("no outcome holds %s", reach.Describe(pkt))
			}
			got := outcomes[i]
			if got.Verdict != want.Verdict || !slices.Equal(got.Effects, done) || got.Rule != want.Rule && want.Verdict != program.Accept {
				t.Fatalf("%s:\nproof:      %s %v\nevaluation: %s %v %q\n%s", reach.Describe(pkt), got, got.Rule, want.Verdict, want.Rule, done, p.Text())
			}
		}
	}
}

// TestFactorCountsOnce: a rule whose elements count, and which covers others that
// ask for the same large set, stays as it is.
func TestFactorCountsOnce(t *testing.T) {
	tcp := program.Condition{Field: program.Protocol, Numbers: number(6)}
	large := program.Condition{Field: program.Source, Set: "large"}
	rule := func(port program.Condition, actions ...program.Action) program.Rule {
		return program.Rule{Match: []program.Condition{tcp, port, large}, Actions: actions}
	}
	element := func(port uint64, counter string) program.Element {
		return program.Element{Parts: []program.Value{{Numbers: number(port)[0]}}, Counter: counter}
	}
	p := &program.Program{
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Sets: []program.Set{
			{ID: "large", Key: []program.Field{program.Source}, Life: program.Static, Addresses: many()},
			{
				ID: "ports", Key: []program.Field{program.Port}, Life: program.Static, Counters: true,
				Elements: []program.Element{element(22, "ssh"), element(80, "web")},
			},
		},
		Counters: []program.Counter{{Name: "ssh"}, {Name: "web"}, {Name: "behind"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
			rule(program.Condition{Field: program.Port, Set: "ports"}, program.Accept),
			rule(program.Condition{Field: program.Port, Numbers: number(80)}, program.Count{Counter: "behind"}, program.Accept),
		}}},
	}
	proveRun(t, p, nil, map[string]int{})
}
