package nftables

import (
	"path/filepath"
	"slices"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// proved lifts a state and proves it equal to a program, for every packet.
func proved(t *testing.T, p *program.Program, have backend.State, can backend.Capabilities) {
	t.Helper()
	r, err := New().(backend.Lifter).Lift(have)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range r.Unlifted {
		t.Errorf("chain %s rule %d: %s: %s", u.Chain, u.Rule, u.Text, u.Why)
	}
	if err := r.Program.Check(); err != nil {
		t.Error(err)
	}
	expected, err := New().(backend.Lifter).Expected(p, can, have, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := expected.Check(); err != nil {
		t.Error(err)
	}
	u := reach.NewUniverse(reach.Options{Settled: true}, expected, r.Program)
	list := u.Compare(expected, r.Program, true)
	for i, d := range list {
		if i < 5 {
			t.Error(d)
		}
	}
	if t.Failed() {
		t.Logf("%d differences\nmeant:\n%s\nlifted:\n%s", len(list), head(expected.Text(), 6000), head(r.Program.Text(), 6000))
	}
}

// stateAfter is the state of a program that is loaded.
func stateAfter(t *testing.T, p *program.Program, can backend.Capabilities) backend.State {
	t.Helper()
	a, err := New().Lower(p, can)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*artifact).Loaded()
}

// TestLiftConstructs: everything that a program can say comes back as it was
// meant, except for what no policy makes, which is refused by name.
func TestLiftConstructs(t *testing.T) {
	refused := map[string]string{"no fragment": "frag frag-off 0", "opaque": "meta pkttype broadcast"}
	for _, c := range constructs {
		t.Run(c.name, func(t *testing.T) {
			p := c.program()
			if text := refused[c.name]; text != "" {
				r := lift(&stateAfter(t, p, everything).(*State).Tree)
				if len(r.Unlifted) != 1 || r.Unlifted[0].Text != text || r.Unlifted[0].Chain != "tried" {
					t.Errorf("refused: %v", r.Unlifted)
				}
				return
			}
			proved(t, p, stateAfter(t, p, everything), everything)
		})
	}
}

// TestLiftWithoutItsBan: a limit whose ban was taken out of its chain, except for the drop
// behind it, is refused by name.
func TestLiftWithoutItsBan(t *testing.T) {
	c := constructs[slices.IndexFunc(constructs, func(c construct) bool { return c.name == "limit per source with ban" })]
	tree := &stateAfter(t, c.program(), everything).(*State).Tree
	limit := tree.chain("lim")
	limit.Rules = slices.DeleteFunc(limit.Rules, func(r Rule) bool {
		return r.Statements[0].Op == "add" || r.Statements[len(r.Statements)-1].Name == "return"
	})
	if r := lift(tree); len(r.Unlifted) == 0 {
		t.Errorf("taken for\n%s", r.Program.Text())
	}
}

// TestNormalFamily: a family that the protocol of a rule says goes without saying, one
// that it does not say stays.
func TestNormalFamily(t *testing.T) {
	asks := func(field, op, value string) Statement {
		return Statement{Kind: Match, Field: field, Op: op, Values: []string{value}}
	}
	for _, c := range []struct {
		protocol, op, family string
		implied              bool
	}{
		{"1", "==", "2", true},
		{"58", "==", "10", true},
		{"1", "==", "10", false},
		{"1", "!=", "2", false},
		{"6", "==", "2", false},
	} {
		rule := []Statement{asks("meta nfproto", "==", c.family), asks("meta l4proto", c.op, c.protocol)}
		if got := normal(rule); (len(got) == 1) != c.implied {
			t.Errorf("%v becomes %v", rule, got)
		}
	}
	original := asks("ct original ip6 saddr", "==", "2001:db8::1") // nft 1.1.3 does not list the family before it
	for family, implied := range map[string]bool{"10": true, "2": false} {
		rule := []Statement{asks("meta nfproto", "==", family), original}
		if got := normal(rule); (len(got) == 1) != implied {
			t.Errorf("%v becomes %v", rule, got)
		}
	}
}

func TestLiftExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			expected, full := compiledFile(t, file)
			proved(t, expected, stateAfter(t, full, everything), everything)
		})
	}
}

// compiledFile gives the program of a policy twice: with the passes that it needs,
// and with all.
func compiledFile(t testing.TB, file string) (expected, full *program.Program) {
	t.Helper()
	p, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{
		Facts: host.Facts{Known: true, DefaultRoute: []string{"eth0"}, EphemeralFrom: 32768, EphemeralTo: 60999},
		Geo:   func() (*geo.Database, error) { return geo.Open(t.TempDir()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var needless []string
	for _, pass := range optimize.Passes {
		if !pass.Required {
			needless = append(needless, pass.Name)
		}
	}
	for _, to := range []struct {
		p       **program.Program
		without []string
	}{{&expected, needless}, {&full, nil}} {
		if *to.p, err = compile.Compile(r); err == nil {
			err = optimize.Run(*to.p, optimize.Options{Without: to.without})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return expected, full
}
