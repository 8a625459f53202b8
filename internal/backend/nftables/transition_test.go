package nftables

import (
	"slices"
	"strings"
	"testing"

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

// TestHoldIsTakenUpAgain stops after every step of changes that begin to track.
// As long as the passage is open, going on holds once more before it closes.
func TestHoldIsTakenUpAgain(t *testing.T) {
	host := kernelHost(t)
	web, mail := tracking(t, 80), tracking(t, 25)
	for _, from := range []*artifact{nil, mail} {
		host.load(t, New(), nil)
		host.load(t, New(), from)
		planned := stepsTo(t, web, host.read(t, true))
		hold := slices.IndexFunc(planned, func(s backend.Step) bool { return s.Purpose == backend.Hold })
		if hold < 0 || hold == len(planned)-1 {
			t.Fatalf("no hold before a sweep: %+v", planned)
		}
		for stop := range planned {
			host.load(t, New(), nil)
			host.load(t, New(), from)
			for _, s := range stepsTo(t, web, host.read(t, true))[:stop] {
				host.step(t, s)
			}
			open := hasPassage(&host.read(t, true).Tree)
			rest := stepsTo(t, web, host.read(t, true))
			holds := slices.ContainsFunc(rest, func(s backend.Step) bool { return s.Purpose == backend.Hold })
			if want := stop <= hold || open; holds != want || open && stop < hold {
				t.Errorf("stopped after %d steps: the passage is open: %v, and it is held: %v", stop, open, holds)
			}
			for _, s := range rest {
				host.step(t, s)
			}
			if rules := rulesOf(host.read(t, true)); strings.Contains(rules, "syn") {
				t.Errorf("stopped after %d steps: the passage stays open:\n%s", stop, rules)
			}
			if d := host.compare(t, web, true); len(d) > 0 {
				t.Errorf("stopped after %d steps: %s", stop, differences(d))
			}
			if again := stepsTo(t, web, host.read(t, true)); len(again) > 0 {
				t.Errorf("stopped after %d steps: it never ends: %+v", stop, again)
			}
		}
	}
}
