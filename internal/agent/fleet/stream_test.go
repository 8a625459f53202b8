package fleet

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

// An agent that starts again ends the trial that it finds, or finds it ended.
func TestRestart(t *testing.T) {
	for name, away := range map[string]time.Duration{"in time": time.Second, "too late": time.Hour} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				_, end := s.member()
				s.desire(wire.Desired{Bundle: 1, Rollout: 1})
				s.await(wire.StateConfirmed, time.Minute)
				two := s.sign("two")
				s.set(func() { s.kernel.kills = true })
				s.set(func() { s.kernel.probes = []string{"controller"} })
				s.desire(wire.Desired{Bundle: two, Rollout: 2, ConfirmSeconds: 60})
				time.Sleep(5 * time.Second)
				end()
				s.set(func() { s.kernel.kills = false })
				if away < time.Minute {
					s.set(func() { s.cut, s.dead = false, false })
				}
				time.Sleep(away)
				_, end = s.member()
				defer end()
				if away < time.Minute {
					s.await(wire.StateConfirmed, time.Minute)
					s.runs("two")
					return
				}
				r := s.await(wire.StateReverted, time.Minute)
				s.runs("one")
				if r.Running != 1 || !strings.Contains(r.Error, "while no agent ran") {
					t.Fatalf("%+v", r)
				}
			})
		})
	}
}

// A bundle that is fetched beforehand is here, and what runs stays.
func TestPrefetch(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		two := s.sign("two")
		s.set(func() { s.tampered = true })
		s.desire(wire.Desired{Bundle: 1, Rollout: 1, Prefetch: &wire.Prefetch{Bundle: two, Rollout: 2}})
		if r := s.await(wire.StateRefused, time.Minute); !strings.Contains(r.Error, "not what was signed") {
			t.Fatalf("%+v", r)
		}
		s.desire(wire.Desired{Bundle: 1, Rollout: 1}) // somebody has stopped that roll-out
		if r := s.await(wire.StateRefused, time.Minute); r.Error != "" || r.Running != 1 || r.Proved.IsZero() {
			t.Fatalf("%+v", r)
		}
		s.set(func() { s.tampered = false })
		s.desire(wire.Desired{Bundle: 1, Rollout: 1, Prefetch: &wire.Prefetch{Bundle: two, Rollout: 2}})
		if r := s.await(wire.StateFetched, time.Minute); r.Bundle != two || r.Rollout != 2 || r.Running != 1 {
			t.Fatalf("%+v", r)
		}
		s.runs("one")
		if have := m.have(); !slices.Equal(have, []int64{1, 2}) {
			t.Fatal(have)
		}
		s.blobs = nil
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("two")
		// What somebody edits on the disk is not what was signed.
		check(t, os.WriteFile(filepath.Join(m.folder(1), "parts", "10-base.yaml"), []byte("own"), 0o600))
		s.desire(wire.Desired{Bundle: 1, Rollout: 2})
		time.Sleep(time.Minute)
		s.runs("two")
	})
}

// What a stream loses the next question brings, and a stream that died in silence is noticed.
func TestSilentDeath(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		s.set(func() { s.dead = true })
		two := s.sign("two")
		s.desire(wire.Desired{Bundle: two, Rollout: 2}) // pushed into nothing
		time.Sleep(44 * time.Second)                    // it is not noticed yet, so that the next stream lives
		s.set(func() { s.dead = false })
		s.await(wire.StateConfirmed, 33*time.Second)
		if len(s.hellos) != 2 {
			t.Fatalf("%d streams", len(s.hellos))
		}
	})
}

// A host comes back within the time that an ending controller names, and soon after another
// one listens.
func TestDrained(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		synctest.Wait()
		for n := 1; n <= 8; n++ {
			s.push(&wire.Message{Drain: &wire.Drain{WithinSeconds: 4}})
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if len(s.hellos) != n+1 {
				t.Fatalf("%d streams after the drain of %d", len(s.hellos), n)
			}
		}
		s.set(func() { s.cut = true })
		s.push(&wire.Message{Drain: &wire.Drain{WithinSeconds: 4}})
		time.Sleep(10 * time.Second)
		s.set(func() { s.cut = false })
		time.Sleep(15 * time.Second) // behind the fourth try, which comes at the latest when the time is over
		synctest.Wait()
		if len(s.hellos) != 10 {
			t.Fatalf("%d streams after one that nobody answered for 10 s", len(s.hellos))
		}
	})
}

// A host is connected again at most a pause after its controller that was killed answers again, and
// after a stream that died in silence at most as long after it can be known: whatever it is asked
// meanwhile, or computes for whoever asked before.
func TestReturns(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /deep", func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Minute) })
		_, end := s.prepared(func(m *Member) { m.Answers = mux })
		defer end()
		streams := func(want int, within time.Duration, what string) {
			t.Helper()
			time.Sleep(within)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.hellos) != want {
				t.Fatalf("%d streams, not %d, %v after %s", len(s.hellos), want, within, what)
			}
		}
		streams(1, 0, "the begin")
		n := 1
		for away := range 20 {
			s.asks(int64(n), "/deep")
			s.set(func() { s.cut = true })
			s.cutAll()
			time.Sleep(time.Duration(away*away) * time.Second)
			s.set(func() { s.cut = false })
			n++
			streams(n, Usual.Reconnect, "the controller is back")
			s.set(func() { s.dead, s.cut = true, true })
			time.Sleep(Usual.Dead)
			s.set(func() { s.dead, s.cut = false, false })
			n++
			streams(n, Usual.Reconnect, "its network is back")
		}
	})
}
