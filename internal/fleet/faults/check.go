package faults

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/wire"
)

// What a fleet has after the faults to be as it shall, and what a host or a controller may
// still do by signed metadata that was replaced while it did something.
const (
	convergence = time.Minute
	underWay    = 30 * time.Second
)

// promises are what must hold under every fault, in the order of the design.
var promises = []struct {
	name  string
	check func(h []Event, broken func(event int, format string, args ...any))
}{
	{"nothing unsigned, foreign or below the floor is enforced", trusted},
	{"a lower (incarnation, revision) is refused", inOrder},
	{"acknowledged writes survive", survives},
	{"a token works as often as it says", tokens},
	{"the audit chain is whole", audited},
	{"a halted roll-out never advances", advances},
	{"no host is told a bundle below the floor", aboveFloor},
	{"packets get the old verdict until a controller says otherwise", untouched},
	{"a restored database rolls no host back", restores},
	{"no ban vanishes, and nothing outlives its time", lives},
	{"no guest is nowhere while it moves", stays},
	{"no guest and no list becomes an older one", newer},
	{"no set holds what is not within it", bounded},
	{"guests, members and lists are where they belong", belongs},
	{"everything has converged a minute after the faults", converges},
}

// Check says which promises a history breaks. A history without what a promise is about
// keeps it.
func Check(h *History) []Violation {
	events := h.Events()
	var all []Violation
	for _, p := range promises {
		p.check(events, func(event int, format string, args ...any) {
			all = append(all, Violation{p.name, event, fmt.Sprintf(format, args...)})
		})
	}
	return all
}

func trusted(h []Event, broken func(int, string, ...any)) {
	type floor struct {
		floor int64
		since time.Time
	}
	signed, floors := map[int64]string{}, map[string][]floor{}
	for i, e := range h {
		switch e.Kind {
		case Signed:
			signed[e.Bundle] = e.Content
		case Heard:
			floors[e.Host] = append(floors[e.Host], floor{e.Floor, e.At})
		case Enforced:
			content, is := signed[e.Bundle]
			switch {
			case e.Bundle == 0:
			case !is:
				broken(i, "%s enforces bundle %d, which nobody signed", e.Host, e.Bundle)
			case content != e.Content:
				broken(i, "%s enforces as bundle %d what is not signed as it", e.Host, e.Bundle)
			}
			for _, f := range floors[e.Host] {
				if e.Bundle != 0 && e.Bundle < f.floor && e.At.Sub(f.since) > underWay {
					broken(i, "%s enforces bundle %d, and has known since %s that %d is the oldest allowed", e.Host, e.Bundle, f.since.Format(time.TimeOnly), f.floor)
					break
				}
			}
		}
	}
}

func inOrder(h []Event, broken func(int, string, ...any)) {
	last := map[string]wire.Order{}
	for i, e := range h {
		if e.Kind != Took {
			continue
		}
		if was := last[e.Host]; e.Order.Compare(was) < 0 {
			broken(i, "%s acts by %d.%d, after %d.%d", e.Host, e.Order.Incarnation, e.Order.Revision, was.Incarnation, was.Revision)
		}
		last[e.Host] = e.Order
	}
}

func survives(h []Event, broken func(int, string, ...any)) {
	type write struct {
		event int
		at    time.Time
	}
	written, found, looked := map[string]write{}, map[string]bool{}, false
	for i, e := range h {
		switch e.Kind {
		case Acknowledged:
			written[e.What] = write{i, e.At}
		case Restored:
			// What the older database never had is nobody's fault but the restorer's.
			maps.DeleteFunc(written, func(_ string, w write) bool { return !w.at.Before(e.Until) })
		case Found:
			found[e.What], looked = true, true
		}
	}
	for what, w := range written {
		if looked && !found[what] {
			broken(w.event, "%s was acknowledged and is not there", what)
		}
	}
}

func tokens(h []Event, broken func(int, string, ...any)) {
	type claim struct{ host, key string }
	used := map[string][]claim{}
	for i, e := range h {
		if c := (claim{e.Host, e.Key}); e.Kind == Enrolled && !slices.Contains(used[e.Token], c) {
			used[e.Token] = append(used[e.Token], c)
			if n := len(used[e.Token]); n > max(1, e.Uses) {
				broken(i, "token %s enrolled host %d, %s", e.Token, n, e.Host)
			}
		}
	}
}

func audited(h []Event, broken func(int, string, ...any)) {
	for i, e := range h {
		if e.Kind == Audited && e.Error != "" {
			broken(i, "%s", e.Error)
		}
	}
}

// told are the hosts that a roll-out has told its bundle.
func told(r rollout.Rollout) map[string]bool {
	hosts := map[string]bool{}
	for id := range r.State.Hosts {
		hosts[id] = true
	}
	return hosts
}

func advances(h []Event, broken func(int, string, ...any)) {
	type id struct{ incarnation, rollout int64 }
	last := map[id]rollout.Rollout{}
	applied := map[id]map[string]bool{}
	for i, e := range h {
		key := id{e.Order.Incarnation, e.RolloutID}
		if e.Kind == Told && e.RolloutID != 0 && e.Bundle != 0 && !e.Lie {
			r, kept := last[key]
			if kept && e.Bundle == r.Bundle && !told(r)[e.Host] {
				broken(i, "%s was told bundle %d by roll-out %d, which never took it", e.Host, e.Bundle, r.ID)
			}
			continue
		}
		if e.Kind == Restored {
			clear(last) // to what they were once
			clear(applied)
		}
		if e.Kind != Kept {
			continue
		}
		key.rollout = e.Rollout.ID
		was := last[key]
		last[key] = e.Rollout
		if applied[key] == nil {
			applied[key] = map[string]bool{}
		}
		stands := slices.Contains([]rollout.Phase{
			rollout.Draft, rollout.Checked, rollout.Paused, rollout.Halted, rollout.Reverting, rollout.Reverted, rollout.Superseded,
		}, was.State.Phase)
		for host := range told(e.Rollout) {
			if !applied[key][host] && stands {
				broken(i, "roll-out %d told %s its bundle while it was %s", e.Rollout.ID, host, was.State.Phase)
			}
			applied[key][host] = true
		}
		if was.State.Phase == rollout.Halted && e.Rollout.State.Phase != rollout.Halted && !resumed(was, e.Rollout) {
			broken(i, "roll-out %d was halted and is %s, and nobody resumed it", e.Rollout.ID, e.Rollout.State.Phase)
		}
	}
}

// resumed says whether a person, or the revert that follows a halt, took a roll-out out of
// being halted.
func resumed(was, is rollout.Rollout) bool {
	switch is.State.Phase {
	case rollout.Reverting, rollout.Reverted, rollout.Superseded:
		return true
	}
	for _, m := range is.State.History[min(len(was.State.History), len(is.State.History)):] {
		if m.Who != "" {
			return true
		}
	}
	return false
}

func aboveFloor(h []Event, broken func(int, string, ...any)) {
	var floor int64
	var since time.Time
	type id struct{ incarnation, rollout int64 }
	targets := map[id]map[string]int64{}
	for i, e := range h {
		switch e.Kind {
		case Published:
			if e.Floor != floor {
				floor, since = e.Floor, e.At
			}
		case Restored:
			floor = 0 // the older database may hold older metadata
			clear(targets)
		case Kept:
			key := id{e.Order.Incarnation, e.Rollout.ID}
			if targets[key] == nil {
				targets[key] = map[string]int64{}
			}
			for host, told := range e.Rollout.State.Hosts {
				if was, had := targets[key][host]; (!had || was != told.Target) && told.Target < floor && e.At.Sub(since) > underWay {
					broken(i, "roll-out %d tells %s bundle %d, and %d is the oldest allowed", e.Rollout.ID, host, told.Target, floor)
				}
				targets[key][host] = told.Target
			}
		}
	}
}

func untouched(h []Event, broken func(int, string, ...any)) {
	type told struct {
		host   string
		bundle int64
	}
	was := map[told]bool{}
	does, before := map[string]int64{}, map[string]int64{}
	for i, e := range h {
		switch e.Kind {
		case Told:
			was[told{e.Host, e.Bundle}] = true
		case Enforced:
			switch {
			case e.Bundle == 0:
				broken(i, "%s enforces nothing any more, after bundle %d", e.Host, does[e.Host])
			case !was[told{e.Host, e.Bundle}]:
				broken(i, "%s enforces bundle %d, and no controller told it to", e.Host, e.Bundle)
			}
			before[e.Host], does[e.Host] = does[e.Host], e.Bundle
		case Final:
			before[e.Host] = does[e.Host]
		case WentBack:
			if e.Bundle != before[e.Host] {
				broken(i, "%s went back to bundle %d, and had %d before", e.Host, e.Bundle, before[e.Host])
			}
			does[e.Host] = e.Bundle
		}
	}
}

func restores(h []Event, broken func(int, string, ...any)) {
	type id struct{ incarnation, rollout int64 }
	kept, ever := map[id]bool{}, map[int64]bool{}
	last := map[string]Event{}
	for i, e := range h {
		switch e.Kind {
		case Kept:
			kept[id{e.Order.Incarnation, e.Rollout.ID}], ever[e.Rollout.ID] = true, true
		case Told:
			if !e.Lie {
				last[e.Host] = e
			}
		case Enforced:
			by := last[e.Host]
			if e.Bundle == by.Bundle && ever[by.RolloutID] && !kept[id{by.Order.Incarnation, by.RolloutID}] {
				broken(i, "%s enforces bundle %d, which roll-out %d told it before the database was restored", e.Host, e.Bundle, by.RolloutID)
			}
		}
	}
}

func converges(h []Event, broken func(int, string, ...any)) {
	var calm time.Time
	ended := false
	for i, e := range h {
		switch e.Kind {
		case Calm:
			calm = e.At
		case Ended:
			ended = true
			switch {
			case e.At.Sub(calm) < convergence:
			case e.Bundle != e.Wants:
				broken(i, "%s runs bundle %d and %d is desired: %s", e.Host, e.Bundle, e.Wants, e.Error)
			case e.Error != "":
				broken(i, "%s runs bundle %d: %s", e.Host, e.Bundle, e.Error)
			}
		}
	}
	if !calm.IsZero() && !ended {
		broken(len(h), "nobody looked how the hosts ended")
	}
}

// late is how much longer something may hold than was said: the clock of the database that a
// host goes by was read before a message that was held up. And how much shorter: a clock that
// was set on and back, to less than a minute behind, is as good as a message that was held up.
// What was said while somebody set that clock, or before, may end by so much earlier or later.
const late = time.Minute

func lives(h []Event, broken func(int, string, ...any)) {
	type one struct{ host, what string }
	ends := map[string][]Event{} // that were said
	var set []Event
	off := func(since, until time.Time) (by time.Duration) {
		for _, e := range set {
			if !e.At.Before(since) && !e.At.After(until) {
				by += e.Ahead.Abs()
			}
		}
		return by
	}
	lifting, known, restored := map[string]bool{}, map[string]time.Time{}, time.Time{}
	wanted, borne := map[string]Event{}, map[one]bool{}
	for i, e := range h {
		switch e.Kind {
		case Set:
			if e.Host == "" { // those of hosts matter to nothing
				set = append(set, e)
			}
		case Holds:
			ends[e.What] = append(ends[e.What], e)
			known[e.What] = e.At
		case Lifting:
			lifting[e.What] = true
		case Restored:
			restored = e.At
			for what, said := range ends { // what the older database has was said before
				for _, before := range said {
					if before.At.Before(e.Until) {
						known[what] = before.At
					}
				}
			}
		case Bears:
			if !slices.ContainsFunc(ends[e.What], func(said Event) bool { return e.Until.Sub(said.Until).Abs() < late+off(said.At, e.At) }) {
				broken(i, "%s holds %s until %s, and nobody said so", e.Host, e.What, e.Until.Format(time.TimeOnly))
			}
		case Lifted:
			forgot := e.Allow && !restored.IsZero()
			if !lifting[e.What] && !forgot && e.At.Before(e.Until.Add(-off(known[e.What], e.At))) {
				broken(i, "%s holds %s no more, which is to hold until %s", e.Host, e.What, e.Until.Format(time.TimeOnly))
			}
		case Wanted:
			wanted[e.What] = e
		case Borne:
			if e.What != "" {
				borne[one{e.Host, e.What}] = true
				_, is := wanted[e.What]
				older := !e.Allow && !restored.IsZero() && known[e.What].Before(restored)
				if !is && !older && e.Until.Sub(e.At) > late+off(known[e.What], e.At) {
					broken(i, "%s holds %s until %s, which was lifted", e.Host, e.What, e.Until.Format(time.TimeOnly))
				}
				continue
			}
			for _, what := range slices.Sorted(maps.Keys(wanted)) {
				if w := wanted[what]; !borne[one{e.Host, what}] && w.Until.Sub(e.At) > late+off(known[what], e.At) {
					broken(i, "%s does not hold %s, which is to hold until %s", e.Host, what, w.Until.Format(time.TimeOnly))
				}
			}
		}
	}
}
