package apply

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"sluice/internal/language/bans"
)

// left is how long the kernel bans what it does for some time.
func (l *lab) left() map[string]time.Duration {
	l.t.Helper()
	out := map[string]time.Duration{}
	l.inside(func(ctx context.Context, h *Host) error {
		s, ctx, err := h.open(ctx)
		if err != nil {
			return err
		}
		defer s.close()
		c, err := s.running(ctx)
		if err != nil {
			return err
		}
		held, err := c.Held(ctx)
		if err != nil {
			return err
		}
		for _, one := range slices.Concat(slices.Collect(maps.Values(held.Single)), held.Ranges) {
			out[one.Range.String()] = one.Left
		}
		return nil
	})
	return out
}

// near says whether a time is a duration within some minutes.
func near(have, want time.Duration) bool { return (have - want).Abs() < 10*time.Minute }

// TestClockIsSet: a ban of this boot ends when its time is up however the wall clock was set
// since, and one of an earlier boot when the clock says so.
func TestClockIsSet(t *testing.T) {
	const hour, years = time.Hour, 56 * 365 * 24 * time.Hour
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	// As a command left it that ran when the clock was ahead.
	wrote := func(boot string, ahead time.Duration, what ...string) {
		t.Helper()
		j := bans.Open(l.dir).By(func() bans.Moment {
			m := bans.Now()
			m.Wall = m.Wall.Add(ahead)
			if boot != "this" {
				m.Boot = boot
			}
			return m
		})
		now := time.Now().Add(ahead).Truncate(time.Millisecond)
		var list []bans.Ban
		for _, w := range what {
			list = append(list, bans.Ban{What: ranges(w)[0], Until: now.Add(hour)})
		}
		if _, err := j.Append(bans.EntryOf(list, now, Author{})); err != nil {
			t.Fatal(err)
		}
		if err := j.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	wrote("first", -years, "192.0.2.1") // it was never told the time
	wrote("second", -years, "192.0.2.2")
	wrote("second", -20*time.Minute) // it was
	wrote("third", 0, "192.0.2.3")
	wrote("this", -years, "192.0.2.4", "192.0.2.128/25")
	wrote("this", 48*hour, "192.0.2.5")
	want := map[string]time.Duration{"192.0.2.2": hour - 20*time.Minute, "192.0.2.3": hour, "192.0.2.4": hour, "192.0.2.128/25": hour, "192.0.2.5": hour}
	l.inside(func(ctx context.Context, h *Host) error { return h.Retime(ctx) })
	for range 2 {
		left := l.left()
		for what, of := range want {
			if !near(left[what], of) {
				t.Errorf("the kernel bans %s for %v, want %v", what, left[what], of)
			}
		}
		have := l.bans()
		for what, b := range have {
			if left := time.Until(b.Until); !near(left, want[what]) {
				t.Errorf("%s is banned for %v, want %v", what, left, want[what])
			}
		}
		if len(left) != len(want) || len(have) != len(want) {
			t.Errorf("bans are %v, of the kernel %v; want %v", have, left, want)
		}
		if s := l.status(); !s.Fine() {
			t.Errorf("%+v", s)
		}
		l.inside(func(_ context.Context, h *Host) error { // the journal is rewritten
			list, err := h.bansJournal().Read()
			if err == nil {
				err = h.bansJournal().Rewrite(list)
			}
			return err
		})
		l.inside(func(ctx context.Context, h *Host) error { return h.Retime(ctx) })
	}
}
