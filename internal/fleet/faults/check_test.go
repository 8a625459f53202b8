package faults

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/wire"
)

// keeps is a roll-out of bundle 2 over 1 as it was committed.
func keeps(phase rollout.Phase, who string, hosts ...string) Event {
	r := rollout.Rollout{ID: 1, Bundle: 2, State: rollout.State{Phase: phase, Hosts: map[string]rollout.Host{}}}
	for _, h := range hosts {
		r.State.Hosts[h] = rollout.Host{Target: 2, Before: 1}
	}
	if who != "" {
		r.State.History = []rollout.Moved{{Phase: phase, Who: who}}
	}
	return Event{Kind: Kept, Rollout: r, Order: wire.Order{Incarnation: 1}}
}

func order(revision int64) wire.Order { return wire.Order{Incarnation: 1, Revision: revision} }

// good is a history without a fault.
var good = []Event{
	{Kind: Signed, Bundle: 1, Content: "one"},
	{Kind: Published},
	{Kind: Enrolled, Host: "web-1", Token: "t", Uses: 1, Key: "k"},
	{Kind: Enrolled, Host: "web-1", Token: "t", Uses: 1, Key: "k"}, // its answer was lost
	{Kind: Acknowledged, What: "bundle 1"},
	{Kind: Told, Host: "web-1", Bundle: 1, Order: order(1)},
	{Kind: Took, Host: "web-1", Order: order(1)},
	{Kind: Enforced, Host: "web-1", Bundle: 1, Content: "one"},
	{Kind: Final, Host: "web-1"},
	{Kind: Signed, Bundle: 2, Content: "two"},
	keeps(rollout.Prefetched, ""),
	keeps(rollout.Pushed, "", "web-1"),
	{Kind: Told, Host: "web-1", Bundle: 2, RolloutID: 1, Order: order(2)},
	{Kind: Took, Host: "web-1", Order: order(2)},
	{Kind: Enforced, Host: "web-1", Bundle: 2, Content: "two"},
	{Kind: WentBack, Host: "web-1", Bundle: 1},
	keeps(rollout.Halted, "", "web-1"),
	keeps(rollout.Pushed, "ann", "web-1"),
	keeps(rollout.Pushed, "", "web-1", "web-2"),
	{Kind: Told, Host: "web-2", Bundle: 2, RolloutID: 1, Order: order(3)},
	{Kind: Enforced, Host: "web-2", Bundle: 2, Content: "two"},
	{Kind: Final, Host: "web-2"},
	{Kind: Published, Floor: 2},
	{Kind: Heard, Host: "web-2", Floor: 2},
	{Kind: Audited},
	{Kind: Found, What: "bundle 1"},
	{Kind: Within, What: "set api", Content: "10.30.0.0/24"},
	{Kind: Placed, Host: "web-1", What: "guest vm-1", Content: "1"},
	{Kind: Carries, Host: "web-1", What: "guest vm-1", Content: "1"},
	{Kind: Carries, Host: "web-1", What: "set api", Content: "10.30.0.5"},
	{Kind: Placed, Host: "web-2", What: "guest vm-1", Content: "2"},
	{Kind: Carries, Host: "web-1", What: "guest vm-1", Content: "2"},
	{Kind: Carries, Host: "web-2", What: "guest vm-1", Content: "2"},
	{Kind: Carries, Host: "web-2", What: "guest vm-1", Back: true}, // its trial failed
	{Kind: Carries, Host: "web-2", What: "guest vm-1", Content: "2"},
	{Kind: Settled, Host: "web-2", What: "guest vm-1"},
	{Kind: Carries, Host: "web-1", What: "guest vm-1"},
	{Kind: Served, What: "list bad", Content: "1"},
	{Kind: Carries, Host: "web-1", What: "list bad", Content: "1"},
	{Kind: Served, What: "list bad", Content: "2"},
	{Kind: Carries, Host: "web-1", What: "list bad", Content: "2"},
}

// noon is before all events, holds a ban that was said, and bears that a host has it.
var (
	noon  = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	holds = Event{Kind: Holds, What: "ban-1", Until: noon.Add(2 * time.Hour)}
	bears = Event{Kind: Bears, Host: "web-1", What: "ban-1", Until: holds.Until}
)

func judge(events ...Event) []Violation {
	var h History
	at := noon
	for _, e := range events {
		at = at.Add(time.Minute)
		e.At = at
		h.Add(e)
	}
	return Check(&h)
}

func TestEachPromiseCanBeBroken(t *testing.T) {
	if v := judge(good...); len(v) > 0 {
		t.Fatalf("a good history: %v", v)
	}
	calm := Event{Kind: Calm}
	broken := map[string]bool{}
	for want, more := range map[string][]Event{
		"bundle 9, which nobody signed":             {{Kind: Told, Host: "web-2", Bundle: 9}, {Kind: Enforced, Host: "web-2", Bundle: 9}},
		"what is not signed as it":                  {{Kind: Enforced, Host: "web-2", Bundle: 2, Content: "tampered"}},
		"that 2 is the oldest allowed":              {{Kind: Told, Host: "web-2", Bundle: 1}, {Kind: Enforced, Host: "web-2", Bundle: 1, Content: "one"}},
		"acts by 1.1, after 1.2":                    {{Kind: Took, Host: "web-1", Order: order(1)}},
		"bundle 2 was acknowledged and is not":      {{Kind: Acknowledged, What: "bundle 2"}},
		"token t enrolled host 2, web-3":            {{Kind: Enrolled, Host: "web-3", Token: "t", Uses: 1, Key: "other"}},
		"entry 7 does not follow":                   {{Kind: Audited, Error: "entry 7 does not follow"}},
		"told web-3 its bundle while it was halted": {keeps(rollout.Halted, "ann", "web-1", "web-2"), keeps(rollout.Halted, "ann", "web-1", "web-2", "web-3")},
		"nobody resumed it":                         {keeps(rollout.Halted, "", "web-1", "web-2"), keeps(rollout.Pushed, "", "web-1", "web-2")},
		"which never took it":                       {{Kind: Told, Host: "web-4", Bundle: 2, RolloutID: 1, Order: order(4)}},
		"tells web-1 bundle 1, and 2 is the oldest": {func() Event {
			e := keeps(rollout.Reverting, "", "web-1", "web-2")
			e.Rollout.State.Hosts["web-1"] = rollout.Host{Target: 1, Before: 1}
			return e
		}()},
		"enforces nothing any more, after bundle 2": {{Kind: Enforced, Host: "web-2"}},
		"no controller told it to":                  {{Kind: Enforced, Host: "web-3", Bundle: 2, Content: "two"}},
		"went back to bundle 1, and had 2 before":   {{Kind: WentBack, Host: "web-2", Bundle: 1}},
		"told it before the database was restored": {
			{Kind: Told, Host: "web-2", Bundle: 2, RolloutID: 1, Order: wire.Order{Incarnation: 2}},
			{Kind: Enforced, Host: "web-2", Bundle: 2, Content: "two"},
		},
		"runs bundle 1 and 2 is desired: offline": {calm, {Kind: Ended, Host: "web-1", Bundle: 1, Wants: 2, Error: "offline"}},
		"web-1 runs bundle 2: it is not proved":   {calm, {Kind: Ended, Host: "web-1", Bundle: 2, Wants: 2, Error: "it is not proved"}},
		"nobody looked how the hosts ended":       {calm},
		"until 15:00:00, and nobody said so":      {{Kind: Bears, Host: "web-1", What: "ban-1", Until: noon.Add(3 * time.Hour)}},
		"until 13:00:00, and nobody said so": {
			{Kind: Set, Ahead: -time.Hour}, holds, {Kind: Bears, Host: "web-1", What: "ban-1", Until: noon.Add(time.Hour)},
		},
		"holds ban-1 no more": {holds, bears, {Kind: Lifted, Host: "web-1", What: "ban-1", Until: holds.Until}},
		"holds ban-1 until 14:00:00, which was lifted": {
			holds, bears, {Kind: Lifting, What: "ban-1"}, {Kind: Borne, Host: "web-1", What: "ban-1", Until: holds.Until},
		},
		"guest vm-1 no more, and no other host":     {{Kind: Carries, Host: "web-2", What: "guest vm-1"}},
		"vm-1 no more, and no other host does yet":  {{Kind: Carries, Host: "web-2", What: "guest vm-1", Back: true}}, // which said that it had come
		"guest vm-1 as \"1\" again, which is older": {{Kind: Carries, Host: "web-2", What: "guest vm-1", Content: "1"}},
		"guest vm-1 as \"3\", which nobody said":    {{Kind: Carries, Host: "web-2", What: "guest vm-1", Content: "3"}},
		"guest vm-1 as \"2\" again, which is older": {{Kind: Carries, Host: "web-1", What: "guest vm-1", Content: "2"}},
		"which has been on web-2 alone since":       {{Kind: Carries, Host: "web-3", What: "guest vm-1", Content: "2"}},
		"list bad as \"1\" again, which is older":   {{Kind: Carries, Host: "web-1", What: "list bad", Content: "1"}},
		"10.30.1.5, which is not within 10.30.0.0":  {{Kind: Carries, Host: "web-1", What: "set api", Content: "10.30.0.5 10.30.1.5"}},
		"set api as \"10.30.0.5\", and is to":       {{Kind: Due, Host: "web-1", What: "set api", Content: "10.30.0.6"}, {Kind: Due, Host: "web-1"}},
		"guest vm-1, which is not to be there":      {{Kind: Due, Host: "web-2"}},
		"does not hold ban-1":                       {holds, {Kind: Wanted, What: "ban-1", Until: holds.Until}, {Kind: Borne, Host: "web-1"}},
	} {
		found := judge(append(good[:len(good):len(good)], more...)...)
		if len(found) != 1 || !strings.Contains(found[0].Text, want) {
			t.Errorf("%s: %v", want, found)
			continue
		}
		broken[found[0].Promise] = true
	}
	for _, p := range promises {
		if !broken[p.name] {
			t.Errorf("no history breaks %q", p.name)
		}
	}
}

// TestClockSetBackLittle: a host notices no clock that is less than a minute behind.
func TestClockSetBackLittle(t *testing.T) {
	for by, most := range map[time.Duration]int{34 * time.Second: 0, 70 * time.Second: 1} {
		short := bears
		short.Until = short.Until.Add(-by)
		if v := judge(Event{Kind: Set, Ahead: time.Hour}, Event{Kind: Set, Ahead: -time.Hour - by}, holds, short); len(v) != most {
			t.Errorf("%s behind: %v", by, v)
		}
	}
}

func TestRestoredDatabase(t *testing.T) {
	at := noon
	var h History
	for i, e := range []Event{
		{Kind: Acknowledged, What: "bundle 1"},
		{Kind: Acknowledged, What: "bundle 2"},
		{Kind: Restored, Until: at.Add(30 * time.Second)}, // between both
		{Kind: Found, What: "nothing else"},
	} {
		e.At = at.Add(time.Duration(i) * time.Minute)
		h.Add(e)
	}
	if v := Check(&h); len(v) != 1 || !strings.Contains(v[0].Text, "bundle 1") {
		t.Error(v)
	}
	// A ban was said again and that was lost: by the older one the clock was set.
	again := judge(
		holds, Event{Kind: Set, Ahead: -2 * time.Hour}, holds, Event{Kind: Restored, Until: noon.Add(150 * time.Second)},
		Event{Kind: Wanted, What: "ban-1", Until: holds.Until}, Event{Kind: Borne, Host: "web-1"},
	)
	if len(again) > 0 {
		t.Error(again)
	}
}
