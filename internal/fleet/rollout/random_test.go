package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/internal/base/testseed"
)

// TestRandomRollouts holds roll-outs to what must be so of each step, whatever hosts,
// people and clocks do: in which order they speak, whether they come, go or lie about
// roll-outs that are none of theirs.
func TestRandomRollouts(t *testing.T) {
	random := testseed.Rand(t)
	ends := map[Phase]int{}
	for range testseed.Rounds(100, 5_000) {
		seed := random.Uint64()
		f := runRandom(t, rand.New(rand.NewPCG(seed, 0)))
		ends[f.r.State.Phase]++
		if t.Failed() {
			t.Fatalf("run %d: %+v", seed, f.r)
		}
	}
	for _, phase := range []Phase{Done, Reverted, Halted, Superseded} {
		if ends[phase] == 0 {
			t.Errorf("no run ended %s: %v", phase, ends)
		}
	}
}

func runRandom(t *testing.T, random *rand.Rand) *fleet {
	plan := quick()
	plan.Stages = [][]Stage{
		{{Percent: 100}},
		{{PerClass: 1}, {Percent: 100}},
		{{PerClass: 2}, {Hosts: 5}, {Percent: 60}, {Percent: 100}},
		{{Hosts: 1}, {Percent: 30}, {Percent: 100}},
	}[random.IntN(4)]
	plan.Settle = Duration(random.IntN(3)) * Duration(30*time.Second)
	plan.Prefetch = Duration(random.IntN(2)) * Duration(time.Minute)
	plan.Pace = random.IntN(4)
	plan.Halt = Limit{Hosts: random.IntN(4), Percent: float64(random.IntN(20))}
	plan.OnHalt = []string{OnHaltHold, OnHaltRevert}[random.IntN(2)]
	plan.Level = random.IntN(3)
	plan.Floor = int64(3 + random.IntN(2))
	if random.IntN(3) == 0 {
		plan.Freeze = []Freeze{{Moment{time.Monday, 9*60 + random.IntN(10)}, Moment{time.Monday, 9*60 + 10 + random.IntN(20)}, "UTC"}}
	}
	if err := plan.Check(); err != nil {
		t.Fatal(err)
	}
	var classes []string
	for range 1 + random.IntN(12) {
		classes = append(classes, []string{"web", "db", "lb"}[random.IntN(3)])
	}
	f := newFleet(t, plan, classes...)
	for _, id := range slices.Sorted(maps.Keys(f.seen)) {
		f.set(id, func(s *Seen) {
			s.Level, s.Online, s.Proved, s.Running = 1+random.IntN(2), random.IntN(5) > 0, random.IntN(5) > 0, int64(random.IntN(5))
		})
	}
	calm := random.IntN(2) == 0 // most runs fail soon otherwise
	for range 20 + random.IntN(60) {
		f.disturb(random, calm)
		f.holdTo()
		if t.Failed() {
			return f
		}
	}
	f.converge()
	return f
}

// disturb is one thing that happens to a fleet.
func (f *fleet) disturb(random *rand.Rand, calm bool) {
	ids := slices.Sorted(maps.Keys(f.seen))
	if len(ids) == 0 {
		f.set("new-0", func(s *Seen) { s.Online = true })
		return
	}
	id := ids[random.IntN(len(ids))]
	told, is := f.r.State.Hosts[id]
	switch n := random.IntN(20); {
	case n < 8 && is:
		states := []HostState{Fetched, Examined, Pending, Proved, Confirmed, Confirmed, Confirmed, Refused, TakenBack, "nonsense"}
		if calm {
			states = states[:6]
		}
		f.says(id, states[random.IntN(len(states))], "because")
	case n < 9:
		// Of a roll-out of another time.
		f.set(id, func(s *Seen) { s.Report = Report{Rollout: 7, Bundle: 5, State: TakenBack} })
	case n < 10 && is:
		// Late, or twice.
		f.set(id, func(s *Seen) { s.Report = Report{Rollout: 1, Bundle: told.Before, State: Confirmed, At: f.now} })
	case n < 12:
		f.set(id, func(s *Seen) { s.Online = !s.Online })
	case n < 13 && !calm:
		f.set(id, func(s *Seen) { s.Drifted = []string{"", "a rule was added"}[random.IntN(2)] })
	case n < 14:
		f.set(id, func(s *Seen) { s.Fetched = true })
	case n < 15:
		f.set(fmt.Sprintf("new-%d", random.IntN(3)), func(s *Seen) { *s = Seen{Class: "web", Level: 2, Online: true} })
	case n < 16 && !calm:
		delete(f.seen, id)
	case n < 17 && (!calm || random.IntN(3) == 0):
		kind := []Kind{Pause, Resume, Resume, Hold, Halt, Revert, Supersede}[random.IntN(7)]
		if r, err := f.r.Do(Command{Kind: kind, Who: "ann", By: 6}, f.now); err == nil {
			f.r = r
		}
	default:
		f.wait(time.Duration(random.IntN(40)) * time.Second)
	}
}

// holdTo steps and checks what must be so of every step.
func (f *fleet) holdTo() {
	f.t.Helper()
	was := f.r.clone()
	seen := maps.Clone(f.seen)
	after, orders := was.Step(seen, f.now)
	if f.step(); f.r.Changed(after) {
		f.t.Error("the same step twice is not the same")
	}
	for _, o := range orders {
		before, known := was.State.Hosts[o.Host]
		now := after.State.Hosts[o.Host]
		switch {
		case o.Prefetch:
			if was.State.Phase != Signed {
				f.t.Errorf("%s asked to fetch while %s", o.Host, was.State.Phase)
			}
		case o.Bundle < f.r.Plan.Floor:
			f.t.Errorf("%s told %d, below the floor", o.Host, o.Bundle)
		case now.Target == f.r.Bundle:
			if known {
				f.t.Errorf("%s told twice", o.Host)
			}
			if s := seen[o.Host]; !s.Online || s.Level < f.r.Plan.Level {
				f.t.Errorf("%s told, %+v", o.Host, s)
			}
			if !slices.Contains(begun, was.State.Phase) && was.State.Phase != Done {
				f.t.Errorf("%s told while %s", o.Host, was.State.Phase)
			}
			if end, _, _ := frozen(f.r.Plan.Freeze, f.now); !end.IsZero() && (now.Stage < len(f.r.Plan.Stages) || now.Before != 0) {
				f.t.Errorf("%s told in a freeze", o.Host)
			}
			if now.Stage != after.State.Stage || now.Stage == was.State.Stage && was.State.Phase == Pushed {
				f.t.Errorf("%s joined stage %d, which had begun", o.Host, now.Stage)
			}
			f.mayGoOn(was, now.Stage)
		case !known || o.Bundle != before.Before || after.State.Phase != Reverting && after.State.Phase != Reverted:
			f.t.Errorf("%s told %d while %s: %+v", o.Host, o.Bundle, after.State.Phase, before)
		}
	}
	if after.State.Stage < was.State.Stage {
		f.t.Errorf("stage %d after %d", after.State.Stage, was.State.Stage)
	}
	if u := after.State.Until; !u.IsZero() && !u.After(f.now) {
		f.t.Errorf("due at %s, and that was now", u)
	}
	if after.State.Reason == "" {
		f.t.Errorf("%s without a reason", after.State.Phase)
	}
	for id, h := range after.State.Hosts {
		if h.Failed && h.Reason == "" {
			f.t.Errorf("%s failed without a reason", id)
		}
	}
}

// mayGoOn checks that the stages before one had confirmed, settled and not failed too much.
func (f *fleet) mayGoOn(was Rollout, stage int) {
	f.t.Helper()
	canaries := 0
	for id, h := range was.State.Hosts {
		_, there := f.seen[id]
		if !there || h.Stage >= stage {
			continue
		}
		if h.Stage == 0 && h.Failed && !h.Excused {
			canaries++
		}
		if was.State.Phase == Settled && !h.Failed && h.State != Confirmed {
			f.t.Errorf("stage %d began while %s of stage %d was %s", stage, id, h.Stage, h.State)
		}
	}
	if canaries >= was.Plan.Halt.canaries() {
		f.t.Errorf("stage %d began after %d canaries failed", stage, canaries)
	}
	if was.State.Phase == Pushed && stage > 0 {
		if q := was.State.Quiet; !q.IsZero() && f.now.Before(q.Add(time.Duration(was.Plan.Settle))) {
			f.t.Errorf("stage %d began before the one ahead of it settled", stage)
		}
	}
}

// converge has every host do well from now on: the roll-out has to come to an end by
// itself, or stand where only a person lets it go on.
func (f *fleet) converge() {
	f.t.Helper()
	for id := range f.seen {
		f.set(id, func(s *Seen) { s.Online, s.Drifted, s.Fetched, s.Proved, s.Level = true, "", true, true, 2 })
	}
	for range 200 {
		f.confirm()
		f.holdTo()
		switch p := f.r.State.Phase; {
		case p == Paused, p == Halted, p == Reverted, p == Superseded, f.t.Failed():
			return
		case p == Done && len(f.r.State.Hosts) >= len(f.seen) && f.r.State.Until.IsZero():
			return
		case len(f.seen) == 0:
			return
		}
		if f.r.State.Until.After(f.now) {
			f.now = f.r.State.Until
		}
	}
	f.t.Errorf("no end: %s: %s", f.r.State.Phase, f.r.State.Reason)
}
