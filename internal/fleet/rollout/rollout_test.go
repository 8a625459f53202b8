package rollout

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestStagesOneAfterAnother(t *testing.T) {
	f := newFleet(t, quick(), "web", "web", "web", "db")
	f.wants("db-4=5 web-3=5", Pushed, "stage 1 of 3 (1 per class): waits for 2 of 2 hosts: db-4 (told) and web-3 (told)")
	f.says("db-4", Pending, "")
	f.says("web-3", Confirmed, "")
	f.wants("", Pushed, "waits for 1 of 2 hosts: db-4 (pending)")
	f.confirm()
	f.wants("", Pushed, "settles until 2026-11-02 09:01:00 UTC")
	if !f.r.State.Until.Equal(f.now.Add(time.Minute)) {
		t.Errorf("until %s", f.r.State.Until)
	}
	f.wait(time.Minute)
	// Half of four hosts have it already.
	f.wants("web-1=5 web-2=5", Pushed, "stage 3 of 3 (100%)")
	f.confirm()
	f.step()
	f.wait(time.Minute)
	f.wants("", Done, "4 hosts confirmed the bundle")
	var phases []string
	for _, h := range f.r.State.History {
		phases = append(phases, string(h.Phase))
	}
	if got := strings.Join(phases, " "); got != "draft checked signed prefetched pushed settled pushed settled done" {
		t.Error(got)
	}
}

func TestCanaryThatFailsTakesAllBack(t *testing.T) {
	f := newFleet(t, quick(), "web", "web", "db")
	f.step()
	f.says("db-3", Confirmed, "")
	f.says("web-2", TakenBack, "probe https://localhost/healthz: connection refused\nasked 3 times")
	f.wants("db-3=4 web-2=4", Reverting, "1 of 2 canaries failed, and the roll-out halts at 1: web-2: it took the bundle back: probe https://localhost/healthz: connection refused …; waits for 2 hosts to go back")
	if reason := f.r.State.Hosts["web-2"].Reason; !strings.HasSuffix(reason, "refused\nasked 3 times") {
		t.Error(reason)
	}
	f.says("db-3", Confirmed, "")
	f.wants("", Reverting, "waits for 1 host to go back: web-2")
	f.says("web-2", Confirmed, "")
	f.wants("", Reverted, "2 hosts back")
	if !f.r.Closed() {
		t.Error("open")
	}
}

func TestHoldLeavesHostsAsTheyAre(t *testing.T) {
	plan := quick()
	plan.OnHalt = OnHaltHold
	f := newFleet(t, plan, "web", "web", "db")
	f.step()
	f.says("web-2", Refused, "blob 11aa is missing")
	f.says("db-3", Confirmed, "")
	f.wants("", Halted, "it refused the bundle: blob 11aa is missing")
	f.wait(time.Hour)
	f.wants("", Halted, "")
	f.do(Command{Kind: Resume, Who: "ann", Why: "a full disk"})
	f.step()
	f.wait(time.Minute)
	f.wants("web-1=5", Pushed, "stage 3 of 3")
}

func TestSilentAfterThePushIsFailed(t *testing.T) {
	f := newFleet(t, quick(), "web", "db")
	f.step()
	f.says("web-1", Confirmed, "")
	f.says("db-2", Fetched, "")
	f.step()
	if !f.r.State.Until.Equal(start.Add(2 * time.Minute)) {
		t.Errorf("until %s", f.r.State.Until)
	}
	f.wait(2*time.Minute - 1)
	f.wants("", Pushed, "db-2 (fetched)")
	f.wait(1)
	f.wants("db-2=4 web-1=4", Reverting, "silent: its last state was fetched, and it had 2m to confirm")
	f.says("web-1", Confirmed, "")
	f.wait(2 * time.Minute)
	f.wants("", Reverted, "1 host back, 1 did not answer and go back when they do: db-2")
}

// A host that says what keeps it is not silent.
func TestTroubleIsSaid(t *testing.T) {
	f := newFleet(t, quick(), "web", "db")
	f.step()
	f.says("web-1", Confirmed, "")
	f.says("db-2", "none", "no space left on device\nsee df")
	f.wants("", Pushed, "db-2 (told: no space left on device)")
	f.wait(2 * time.Minute)
	f.wants("db-2=4 web-1=4", Reverting, "it had 2m to confirm, and is told: no space left on device")
	f.says("web-1", Confirmed, "")
	f.says("db-2", "none", "no space left on device")
	f.wait(2 * time.Minute)
	f.wants("", Reverted, "1 did not answer and go back when they do: db-2 (no space left on device)")
}

func TestBeyondTheCanariesAShareHalts(t *testing.T) {
	for _, c := range []struct {
		limit  Limit
		failed int
		phase  Phase
	}{
		{Limit{}, 2, Pushed}, // of 299, 1 % are 3
		{Limit{}, 3, Reverting},
		{Limit{Hosts: 5}, 4, Pushed},
		{Limit{Hosts: 5}, 5, Reverting},
		{Limit{Percent: 10}, 29, Pushed},
		{Limit{Percent: 10}, 30, Reverting},
	} {
		plan := quick()
		plan.Halt, plan.Settle = c.limit, 0
		plan.Stages = []Stage{{PerClass: 1}, {Percent: 100}}
		f := newFleet(t, plan, strings.Fields(strings.Repeat("web ", 300))...)
		f.step()
		f.confirm()
		f.step()
		if n := len(f.r.State.Hosts); n != 300 {
			t.Fatalf("%d hosts told: %s", n, f.r.State.Reason)
		}
		for id, h := range f.r.State.Hosts {
			if h.Stage == 1 && c.failed > 0 {
				f.says(id, Refused, "no")
				c.failed--
			}
		}
		f.step()
		if f.r.State.Phase != c.phase {
			t.Errorf("%+v: %s: %s", c, f.r.State.Phase, f.r.State.Reason)
		}
	}
}

func TestSettlingHosts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Seen)
		wait   time.Duration
		phase  Phase
		reason string
	}{
		"drift":      {func(s *Seen) { s.Drifted = "table sluice is gone" }, 0, Reverting, "drifted while it settled: table sluice is gone"},
		"away":       {func(s *Seen) { s.Online = false }, time.Minute, Pushed, "waits for 1 host, which confirmed and went away: web-1"},
		"stays away": {func(s *Seen) { s.Online = false }, 2 * time.Minute, Reverting, "went away and did not come back"},
		"removed":    {nil, time.Minute, Done, "1 host confirmed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, quick(), "web")
			f.step()
			f.confirm()
			f.step()
			if c.change != nil {
				f.set("web-1", c.change)
			} else {
				delete(f.seen, "web-1")
			}
			f.wait(c.wait)
			f.step()
			if f.r.State.Phase != c.phase || !strings.Contains(f.r.State.Reason, c.reason) {
				t.Errorf("%s: %s", f.r.State.Phase, f.r.State.Reason)
			}
		})
	}
}

func TestClockThatWasAhead(t *testing.T) {
	f := newFleet(t, quick(), "web")
	f.wait(26 * time.Hour)
	f.step()
	f.wait(-26 * time.Hour) // the next controller's is right
	f.step()
	f.wait(2 * time.Minute)
	f.wants("web-1=4", Reverting, "silent")
}

func TestPauseLetsNoStageBegin(t *testing.T) {
	f := newFleet(t, quick(), "web", "web")
	f.step()
	f.do(Command{Kind: Pause, Who: "ann", Why: "lunch"})
	f.confirm()
	f.wait(time.Hour)
	f.wants("", Paused, "paused by ann: lunch")
	if f.r.State.Hosts["web-1"].State != Confirmed && f.r.State.Hosts["web-2"].State != Confirmed {
		t.Error("a report was not taken")
	}
	f.do(Command{Kind: Resume, Who: "ann"})
	f.wants("", Pushed, "settles until 2026-11-02 10:01:00 UTC")
	f.wait(time.Minute)
	if f.step() == "" {
		t.Error("no next stage")
	}
}

func TestPausedStillHalts(t *testing.T) {
	f := newFleet(t, quick(), "web", "web", "web")
	f.step()
	f.do(Command{Kind: Pause, Who: "ann"})
	for id := range f.r.State.Hosts {
		f.says(id, TakenBack, "probe")
	}
	f.step()
	if f.r.State.Phase != Reverting {
		t.Error(f.r.State.Phase)
	}
}

func TestTimesToWaitFor(t *testing.T) {
	plan := quick()
	plan.NotBefore = start.Add(time.Hour)
	plan.Freeze = []Freeze{{Moment{time.Monday, 11 * 60}, Moment{time.Monday, 12 * 60}, "Europe/Berlin"}} // 10 to 11 UTC
	f := newFleet(t, plan, "web")
	f.wants("", Prefetched, "waits for its time: not before 2026-11-02 10:00:00 UTC")
	f.wait(time.Hour)
	f.wants("", Prefetched, "frozen (Mon 11:00 - Mon 12:00 Europe/Berlin) until 2026-11-02 11:00:00 UTC")
	f.wait(time.Hour)
	f.wants("web-1=5", Pushed, "")
}

func TestHostsThatWereAway(t *testing.T) {
	plan := quick()
	plan.Settle = 0
	f := newFleet(t, plan, "web", "web", "db", "db")
	for _, away := range []string{"web-2", "db-3", "db-4"} {
		f.set(away, func(s *Seen) { s.Online = false })
	}
	f.step()
	f.confirm()
	f.wants("", Done, "1 host confirmed the bundle, 3 take it when they can")
	for _, back := range []string{"web-2", "db-3", "db-4"} {
		f.set(back, func(s *Seen) { s.Online = true })
	}
	// Nobody of the class db tried it yet: one goes first.
	f.wants("db-4=5 web-2=5", Done, "")
	f.says("db-4", Confirmed, "")
	f.wants("db-3=5", Done, "")
	f.says("db-3", TakenBack, "probe")
	f.wants("", Halted, "1 of 3 late hosts failed")
	f.do(Command{Kind: Resume, Who: "ann"})
	f.set("new-1", func(s *Seen) { *s = Seen{Class: "web", Level: 1, Online: true, Ordered: 7} })
	f.wants("", Done, "") // a newer roll-out has it
	f.set("new-1", func(s *Seen) { s.Ordered = 0 })
	f.wants("new-1=5", Done, "")
}

func TestOlderAgentsAreNamedBeforeThePush(t *testing.T) {
	plan := quick()
	plan.Level, plan.Prefetch = 2, Duration(time.Minute)
	f := newFleet(t, plan, "web", "web")
	f.set("web-2", func(s *Seen) { s.Level = 2 })
	f.wants("web-2?5", Signed, "1 host to fetch the bundle")
	if len(f.r.State.LeftOut) != 1 || f.r.State.LeftOut[0].Host != "web-1" || !strings.Contains(f.r.State.LeftOut[0].Reason, "reads language level 1 and the bundle is written in 2") {
		t.Errorf("%+v", f.r.State.LeftOut)
	}
	f.set("web-2", func(s *Seen) { s.Fetched = true })
	f.wants("web-2=5", Pushed, "")
	f.confirm()
	f.step()
	f.wait(time.Minute)
	f.wants("", Done, "1 take it when they can")
	f.set("web-1", func(s *Seen) { s.Level = 2 })
	f.wants("web-1=5", Done, "")
}

func TestPrefetchIsPaced(t *testing.T) {
	plan := quick()
	plan.Pace, plan.Prefetch = 2, Duration(10*time.Minute)
	f := newFleet(t, plan, "web", "web", "web")
	f.wants("web-1?5 web-2?5", Signed, "3 hosts to fetch the bundle")
	f.set("web-2", func(s *Seen) { s.Fetched = true })
	f.wants("web-3?5", Signed, "")
	f.wait(time.Minute) // nothing from both
	f.wants("web-1?5 web-3?5", Signed, "")
	f.wait(9 * time.Minute)
	f.step()
	if f.r.State.Phase != Pushed || !strings.Contains(f.r.State.History[3].Reason, "1 host fetched the bundle, 2 did not within 10m: web-1 and web-3") {
		t.Errorf("%s %+v", f.r.State.Phase, f.r.State.History)
	}
}

func TestCanariesAreOnlineAndProved(t *testing.T) {
	f := newFleet(t, quick(), "web", "web", "web")
	f.set("web-1", func(s *Seen) { s.Online = false })
	f.set("web-2", func(s *Seen) { s.Proved = false })
	f.set("web-3", func(s *Seen) { s.Proved = false })
	f.wants("", Prefetched, "waits for a host that is online and proved, to be the first: 1 offline, 2 unproved")
	f.set("web-3", func(s *Seen) { s.Proved = true })
	f.wants("web-3=5", Pushed, "")
	// Frozen: who comes now is of a later stage.
	f.set("web-1", func(s *Seen) { s.Online = true })
	f.wants("", Pushed, "waits for 1 of 1 host")
}

func TestNoHostIsToldABundleBelowTheFloor(t *testing.T) {
	f := newFleet(t, quick(), "web", "web")
	f.step()
	f.r.Plan.Floor = 5
	f.confirm()
	f.do(Command{Kind: Halt, Who: "ann"})
	f.wants("", Halted, "no host has a bundle to go back to")
	f.r.Plan.Floor = 6
	f.do(Command{Kind: Resume, Who: "ann"})
	f.wants("", Halted, "bundle 5 is below 6")
}

func TestSuperseded(t *testing.T) {
	f := newFleet(t, quick(), "web", "web")
	f.step()
	newer := New(6, quick(), f.now)
	newer.ID = 2
	if !newer.Supersedes(f.r) || f.r.Supersedes(newer) {
		t.Error("a running one")
	}
	done := f.r
	done.State.Phase = Done
	if newer.Supersedes(done) {
		t.Error("hosts that come back would get no bundle")
	}
	newer.State.Phase = Done
	if !newer.Supersedes(done) {
		t.Error("a done one")
	}
	f.do(Command{Kind: Supersede, By: 6})
	f.confirm()
	f.wait(time.Hour)
	f.wants("", Superseded, "bundle 6 took its place")
}

func TestCommandsThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		phase Phase
		kind  Kind
	}{
		{Draft, Sign},
		{Draft, Hold},
		{Draft, Revert},
		{Draft, Resume},
		{Checked, Check},
		{Done, Pause},
		{Pushed, Resume},
		{Halted, Hold},
		{Paused, Pause},
		{Reverting, Halt},
		{Reverted, Revert},
		{Superseded, Supersede},
		{Pushed, "explode"},
	} {
		r := New(5, quick(), start)
		r.State.Phase = c.phase
		after, err := r.Do(Command{Kind: c.kind, Who: "ann"}, start)
		var refusal *RefusedError
		if !errors.As(err, &refusal) || after.Changed(r) {
			t.Errorf("%s while %s: %v", c.kind, c.phase, err)
		}
	}
}

func TestPlans(t *testing.T) {
	if err := DefaultPlan().Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Plan){
		"needs a stage":     func(p *Plan) { p.Stages = nil },
		"the last stage is": func(p *Plan) { p.Stages = p.Stages[:1] },
		"a stage is a":      func(p *Plan) { p.Stages[0].Hosts = 3 },
		"settle is -1s":     func(p *Plan) { p.Settle = -Duration(time.Second) },
		"confirm is 0s":     func(p *Plan) { p.Confirm = 0 },
		"negative":          func(p *Plan) { p.Pace = -1 },
		"what follows":      func(p *Plan) { p.OnHalt = "pray" },
		"unknown time zone": func(p *Plan) { p.Freeze = []Freeze{{Moment{1, 0}, Moment{2, 0}, "Mars/Phobos"}} },
		"no such minute":    func(p *Plan) { p.Freeze = []Freeze{{Moment{1, 1440}, Moment{2, 0}, "UTC"}} },
		"is empty":          func(p *Plan) { p.Freeze = []Freeze{{Moment{1, 0}, Moment{1, 0}, "UTC"}} },
	} {
		p := DefaultPlan()
		change(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestFreezeByTheClocksOfAPlace(t *testing.T) {
	week := Freeze{Moment{time.Friday, 16 * 60}, Moment{time.Monday, 8 * 60}, "Europe/Berlin"}
	night := func(from, to int) Freeze {
		return Freeze{Moment{time.Sunday, from}, Moment{time.Sunday, to}, "Europe/Berlin"}
	}
	most := Freeze{Moment{time.Friday, 16 * 60}, Moment{time.Friday, 8 * 60}, "Europe/Berlin"}
	for _, c := range []struct {
		window Freeze
		now    string
		until  string
	}{
		{week, "2026-11-06T14:59:59Z", ""},
		{week, "2026-11-06T15:00:00Z", "2026-11-09T07:00:00Z"},
		{week, "2026-11-09T06:59:59Z", "2026-11-09T07:00:00Z"},
		{week, "2026-11-09T07:00:00Z", ""},
		// Summer time begins on 29 March and ends on 25 October 2026.
		{week, "2026-03-27T15:00:00Z", "2026-03-30T06:00:00Z"},
		{week, "2026-10-23T14:00:00Z", "2026-10-26T07:00:00Z"},
		// 02:30 is skipped: the window is the longer one.
		{night(150, 300), "2026-03-29T00:30:00Z", "2026-03-29T03:00:00Z"},
		{night(60, 150), "2026-03-29T01:29:59Z", "2026-03-29T01:30:00Z"},
		{night(60, 150), "2026-03-29T01:30:00Z", ""},
		// 02:30 is shown twice: from the first to the second.
		{night(150, 300), "2026-10-25T00:29:59Z", ""},
		{night(150, 300), "2026-10-25T00:30:00Z", "2026-10-25T04:00:00Z"},
		{night(60, 150), "2026-10-25T01:29:59Z", "2026-10-25T01:30:00Z"},
		// From Friday to the next Friday, except for eight hours.
		{most, "2026-11-06T06:59:59Z", "2026-11-06T07:00:00Z"},
		{most, "2026-11-06T07:00:00Z", ""},
		{most, "2026-11-06T15:00:00Z", "2026-11-13T07:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		until, err := c.window.until(now)
		got := ""
		if !until.IsZero() {
			got = until.UTC().Format(time.RFC3339)
		}
		if err != nil || got != c.until {
			t.Errorf("%s at %s: until %q, want %q, %v", c.window, c.now, got, c.until, err)
		}
	}
	now := time.Date(2026, 11, 6, 15, 0, 0, 0, time.UTC)
	if end, _, err := frozen([]Freeze{{Moment{time.Monday, 8 * 60}, Moment{time.Monday, 9 * 60}, "Europe/Berlin"}, week}, now); err != nil || end.UTC().Hour() != 8 {
		t.Errorf("windows without a gap: %s, %v", end, err)
	}
	if _, _, err := frozen([]Freeze{{week.From, week.To, "Mars/Phobos"}}, now); err == nil {
		t.Error("a zone that is none")
	}
}
