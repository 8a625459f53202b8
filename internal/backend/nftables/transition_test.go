package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// tracking is a policy that decides by state, and keeps a port out of tracking.
func tracking(t *testing.T, bypassed uint64) *artifact {
	t.Helper()
	return mustLower(t, &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{
			{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
			{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
		},
		Chains: []program.Chain{
			{Name: "prerouting_raw", Rules: []program.Rule{{Match: conditions{protocolIs(6), numbersOf(program.Port, exactly(bypassed))}, Actions: actions{program.NoTrack{}}}}},
			{Name: "input", Rules: []program.Rule{
				{Match: conditions{namesOf(program.State, "established", "related")}, Actions: actions{program.Accept}},
				{Match: conditions{protocolIs(6), numbersOf(program.Port, exactly(22))}, Actions: actions{program.Accept}},
			}},
		},
	})
}

// withGrace is the policy with so long a grace, asked for its own flows and for
// those that it forwards.
func withGrace(a *artifact, grace time.Duration) *artifact {
	tree := *a.Tree
	tree.Grace = uint64(grace.Milliseconds()) //nolint:gosec // not negative
	out := *a
	out.Tree = &tree
	return out.Passing(true, true, out.Grace()).(*artifact)
}

// TestGraceIsTakenUpAgain stops after every step of changes that begin to track. A
// grace that has begun goes on, whatever happens to the command, and is no
// difference; nor is what is left of it when it is over, until the next steps.
func TestGraceIsTakenUpAgain(t *testing.T) {
	host := kernelHost(t)
	web, mail := withGrace(tracking(t, 80), time.Hour), withGrace(tracking(t, 25), time.Hour)
	for _, from := range []*artifact{nil, mail} {
		begin := func() {
			host.load(t, New(), nil)
			if from != nil {
				host.load(t, New(), tracking(t, 25))
			}
		}
		begin()
		planned := stepsTo(t, web, host.read(t, true))
		switches := slices.IndexFunc(planned, func(s backend.Step) bool { return s.Purpose == backend.Switch })
		for stop := range len(planned) + 1 {
			begin()
			for _, s := range stepsTo(t, web, host.read(t, true))[:stop] {
				host.step(t, s)
			}
			switched := stop > switches
			if left := host.read(t, true).Grace(); switched != (left > 0) {
				t.Errorf("stopped after %d steps: %s of the grace are left", stop, left)
			}
			// The next command does not ask for it, and ends none either.
			for _, s := range stepsTo(t, web.Passing(false, false, 0).(*artifact), host.read(t, true)) {
				host.step(t, s)
			}
			left := host.read(t, true).Grace()
			if switched != (left > 0) {
				t.Errorf("stopped after %d steps and taken up: %s of the grace are left", stop, left)
			}
			host.holds(t, fmt.Sprintf("stopped after %d steps, %s of the grace left", stop, left), web)
			if switched {
				host.Nft("flush set inet sluice " + graceSet) // as when its time is over
			}
			host.holds(t, fmt.Sprintf("stopped after %d steps, the grace over", stop), web)
			for _, s := range stepsTo(t, web.Passing(false, false, 0).(*artifact), host.read(t, true)) {
				host.step(t, s)
			}
			if text := host.MustRun("nft", "list", "table", "inet", "sluice"); strings.Contains(text, "grace") || strings.Contains(text, "syn") {
				t.Errorf("stopped after %d steps: something of the grace stays:\n%s", stop, text)
			}
			if again := stepsTo(t, web.Passing(false, false, 0).(*artifact), host.read(t, true)); len(again) > 0 {
				t.Errorf("stopped after %d steps: it never ends: %+v", stop, again)
			}
		}
	}
}

// TestGraceEnds: the kernel ends it, and another switch meanwhile lets it go on as
// long as it was to last, as far as the policy gives so much.
func TestGraceEnds(t *testing.T) {
	host := kernelHost(t)
	long := withGrace(tracking(t, 80), time.Hour)
	host.load(t, New(), long)
	first := host.read(t, true).Grace()
	unasked := func(a *artifact, grace time.Duration) *artifact {
		return withGrace(a, grace).Passing(false, false, 0).(*artifact)
	}
	host.load(t, New(), unasked(tracking(t, 80), time.Hour))
	host.load(t, New(), unasked(mustLower(t, &program.Program{
		Owner:  "sluice",
		Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: tracked("established")}},
	}), time.Hour))
	if left := host.read(t, true).Grace(); left == 0 || left > first {
		t.Errorf("another policy leaves %s of %s", left, first)
	}
	host.load(t, New(), unasked(tracking(t, 80), time.Second))
	if left := host.read(t, true).Grace(); left != 0 {
		t.Errorf("a policy that gives a second leaves %s", left)
	}
	if text := host.MustRun("nft", "list", "table", "inet", "sluice"); strings.Contains(text, "grace") {
		t.Errorf("something of the grace stays:\n%s", text)
	}
	host.load(t, New(), nil)
	host.load(t, New(), withGrace(tracking(t, 80), 300*time.Millisecond))
	eventually(t, "the grace ends", func() bool { return host.read(t, true).Grace() == 0 })
	host.holds(t, "what is left of it is a difference", withGrace(tracking(t, 80), 300*time.Millisecond))
}

// TestGraceOfOthers: what lets packets pass for longer than the policy says is told
// of, and fixed.
func TestGraceOfOthers(t *testing.T) {
	host := kernelHost(t)
	a := withGrace(tracking(t, 80), time.Minute)
	for _, timeout := range []string{"", " timeout 2m"} {
		host.load(t, New(), nil)
		host.load(t, New(), a)
		host.Nft("flush set inet sluice " + graceSet + "; add element inet sluice " + graceSet + " { tcp" + timeout + " }")
		if d := host.compare(t, a, true); len(d) != 1 {
			t.Errorf("an element of another hand%s: %s", timeout, differences(d))
		}
		host.load(t, New(), a.Passing(false, false, 0).(*artifact))
		if d := host.compare(t, a, true); len(d) > 0 || host.read(t, true).Grace() > 0 {
			t.Errorf("an element of another hand%s is not fixed: %s", timeout, differences(d))
		}
	}
}

// TestBegins: which flows a change begins to track.
func TestBegins(t *testing.T) {
	host := kernelHost(t)
	web, mail := tracking(t, 80), tracking(t, 25)
	forwards := mustLower(t, &program.Program{
		Owner:  "sluice",
		Hooks:  []program.Hook{{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"}},
		Chains: []program.Chain{{Name: "forward", Rules: tracked("established")}},
	})
	open := func(action program.Action) *artifact {
		return mustLower(t, &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Forward, Phase: program.Filter, Default: program.Accept, Chain: "forward"}},
			Chains: []program.Chain{
				{Name: "forward", Rules: []program.Rule{tracked("established")[0], {Actions: actions{program.Goto{Chain: "rules"}}}}},
				{Name: "rules", Rules: []program.Rule{{Match: conditions{protocolIs(6), numbersOf(program.Port, exactly(22))}, Actions: actions{action}}}},
			},
		})
	}
	stateless := mustLower(t, &program.Program{
		Owner:  "sluice",
		Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{{Match: conditions{protocolIs(6)}, Actions: actions{program.Accept}}}}},
	})
	for _, test := range []struct {
		name           string
		from, to       *artifact
		own, forwarded bool
	}{
		{"the first load", nil, web, true, false},
		{"the first load of a router", nil, forwards, true, true},
		{"the first load where a rule refuses", nil, open(program.Drop), true, true},
		{"the first load where nothing is refused", nil, open(program.Accept), true, false},
		{"after rules without states", stateless, forwards, true, true},
		{"rules without states", nil, stateless, false, false},
		{"another bypass", mail, web, true, false},
		{"a bypass ends", web, forwards, true, false},
		{"a bypass begins", forwards, web, false, false},
		{"the same", web, web, false, false},
	} {
		host.load(t, New(), nil)
		host.load(t, New(), test.from)
		if own, forwarded := test.to.Begins(host.read(t, true)); own != test.own || forwarded != test.forwarded {
			t.Errorf("%s: own %v, forwarded %v", test.name, own, forwarded)
		}
	}
}

func tracked(states ...string) []program.Rule {
	return []program.Rule{{Match: conditions{namesOf(program.State, states...)}, Actions: actions{program.Accept}}, {Match: conditions{protocolIs(6), numbersOf(program.Port, exactly(22))}, Actions: actions{program.Accept}}}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("after a minute it is not so: %s", what)
		}
	}
}
