package faults

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/base/testseed"
)

// simulate has a fleet live through what a seed draws, and judges it.
func simulate(t *testing.T, seed uint64, plant planted) (broken []Violation, history []Event) {
	t.Helper()
	listServer() // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, seed, plant)
		f.run()
		// What was committed is read of the audit afterwards.
		sorting.StableBy(f.history.events, func(a, b Event) int {
			return a.At.Truncate(time.Microsecond).Compare(b.At.Truncate(time.Microsecond)) // as databases keep times
		})
		broken, history = Check(&f.history), f.history.Events()
	})
	return broken, history
}

// TestFaults has fleets lose, double and reorder messages, lose controllers, agents and
// networks, and be restored from older databases.
func TestFaults(t *testing.T) {
	t.Parallel()
	random := testseed.Rand(t)
	counts := map[string]int{}
	for range testseed.Rounds(50, 300) {
		seed := random.Uint64()
		broken, history := simulate(t, seed, none)
		for _, e := range history {
			switch {
			case e.Kind == Fault:
				counts[e.What]++
			case e.Kind == Set && e.Host != "":
				counts["set at a host"]++
			default:
				counts[string(e.Kind)]++
			}
		}
		if len(broken) == 0 && !t.Failed() {
			continue
		}
		for _, e := range history {
			t.Log(e)
		}
		for _, v := range broken {
			t.Error(v)
		}
		t.Fatalf("the fleet of seed %d", seed)
	}
	kinds := slices.Concat([]string{"set at a host"}, everyFault, lies)
	for _, kind := range []Kind{Enforced, WentBack, Restored, Kept, Final, Ended, Holds, Lifting, Bears, Lifted, Set, Placed, Settled, Served, Carries, Due} {
		kinds = append(kinds, string(kind))
	}
	for _, kind := range kinds {
		if testing.Short() && kind == "two controllers" {
			continue
		}
		if counts[kind] == 0 {
			t.Errorf("nothing is %s in any of the histories: %v", kind, counts)
		}
	}
	t.Log(counts)
}

// TestPlantedBugs has the same fleets with a bug each, which has to be found.
func TestPlantedBugs(t *testing.T) {
	for plant, promise := range map[planted]string{
		haltedAdvances: "a halted roll-out never advances",
		lowerRevision:  "a lower (incarnation, revision) is refused",
		anyBundle:      "nothing unsigned, foreign or below the floor is enforced",
		belowFloor:     "nothing unsigned, foreign or below the floor is enforced",
		lostBans:       "no ban vanishes, and nothing outlives its time",
		longBans:       "no ban vanishes, and nothing outlives its time",
		oldClock:       "no ban vanishes, and nothing outlives its time",
		staleSteps:     "a halted roll-out never advances",
		wallClock:      "no ban vanishes, and nothing outlives its time",
		lostMoves:      "no guest is nowhere while it moves",
		keptGuests:     "guests, members and lists are where they belong",
		oldGuests:      "no guest and no list becomes an older one",
		anyMembers:     "no set holds what is not within it",
		oldLists:       "no guest and no list becomes an older one",
		emptyLists:     "no guest and no list becomes an older one",
		keptLists:      "guests, members and lists are where they belong",
	} {
		if testing.Short() && plant == staleSteps { // of two controllers
			continue
		}
		t.Run(strings.ReplaceAll(string(plant), " ", "-"), func(t *testing.T) {
			t.Parallel()
			random := testseed.Rand(t)
			const most = 30
			for range most {
				broken, _ := simulate(t, random.Uint64(), plant)
				if slices.ContainsFunc(broken, func(v Violation) bool { return v.Promise == promise }) {
					return
				}
			}
			t.Errorf("not found in %d fleets", most)
		})
	}
}
