package fleet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

// What is desired comes into force, and the steps that take long are told.
func TestConfirmed(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.set(func() { s.kernel.takes = 2 * reportEvery })
		_, end := s.member()
		defer end()
		s.set(func() { s.kernel.probes = []string{"controller", "tcp 192.0.2.7:443"} })
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		r := s.await(wire.StateConfirmed, time.Minute)
		s.runs("one")
		if r.Running != 1 || r.Proved.IsZero() || r.Mark != "m1" || len(r.Probes) != 2 || !r.Probes[0].Ok {
			t.Fatalf("%+v", r)
		}
		var states []wire.State
		for _, r := range s.reports {
			if len(states) == 0 || states[len(states)-1] != r.State {
				states = append(states, r.State)
			}
		}
		if got := states[len(states)-1]; got != wire.StateConfirmed || !slices.Contains(states, wire.StateChecked) {
			t.Fatal(states)
		}
		two := s.sign("two")
		killed := filepath.Join(s.dir, "bundles", unfinished+"1") // with the agent that fetched it
		if err := os.Mkdir(killed, 0o700); err != nil {
			t.Fatal(err)
		}
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("two")
		if _, err := os.Stat(killed); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", killed, err)
		}
		s.desire(wire.Desired{Bundle: 1, Rollout: 2}) // the roll-out went back
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("one")
	})
}

// Nothing that is not signed for this fleet, or comes late, is enforced, and each is told.
func TestNotTaken(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)

		s.desire(wire.Desired{Bundle: 7, Rollout: 2})
		if r := s.await(wire.StateRefused, time.Minute); !strings.Contains(r.Error, "not signed") || r.Running != 1 {
			t.Fatalf("%+v", r)
		}
		late := s.desired
		late.Order.Revision, late.Bundle = 1, 1
		late.Rollout = 9
		s.push(&wire.Message{Desired: &late})
		synctest.Wait()
		if r := s.last(); r.Rollout == 9 {
			t.Fatalf("a lower revision was taken: %+v", r)
		}

		// Who forged that is gone, and what was desired all the time still is.
		s.desire(wire.Desired{Bundle: 1, Rollout: 1, Since: 1})
		synctest.Wait()
		if m.now().Desired.Bundle != 1 {
			t.Fatalf("a bundle that nobody signed keeps the signed one away: %+v", m.now())
		}

		// A copy of the database from before bundle 2 was desired, in which much has happened since.
		two := s.sign("two")
		s.desire(wire.Desired{Bundle: two, Rollout: 3})
		s.await(wire.StateConfirmed, time.Minute)
		older := s.desired
		older.Order.Revision, older.Bundle, older.Rollout, older.Since = older.Order.Revision+9, 1, 1, 1
		s.push(&wire.Message{Desired: &older})
		synctest.Wait()
		if m.now().Desired.Bundle != two {
			t.Fatalf("an older copy was taken: %+v", m.now())
		}
		m.mu.Lock()
		doubt := m.untaken
		m.mu.Unlock()
		if !strings.Contains(doubt, "the policy key has to sign a new incarnation") {
			t.Error(doubt)
		}

		// The same keeps a host with the order of a thief that has the keys of a controller, where
		// it names a signed bundle: the true order of that revision came too late.
		forged := s.desired
		forged.Order.Revision, forged.Bundle, forged.Rollout, forged.Since = forged.Order.Revision+1, 1, 998, forged.Order.Revision+1
		s.push(&wire.Message{Desired: &forged})
		synctest.Wait()
		late = forged
		late.Rollout = 4
		s.push(&wire.Message{Desired: &late})
		synctest.Wait()
		m.mu.Lock()
		doubt = m.untaken
		m.mu.Unlock()
		if m.now().Desired.Rollout != 998 || !strings.Contains(doubt, "the policy key has to sign a new incarnation") {
			t.Fatalf("%+v: %s", m.now(), doubt)
		}
		s.desire(wire.Desired{Bundle: two, Rollout: 5})
		s.desire(wire.Desired{Bundle: two, Rollout: 3})
		s.await(wire.StateConfirmed, time.Minute)

		desired := s.desired
		s.push(&wire.Message{Desired: &desired})
		synctest.Wait()
		signed := s.trusted
		s.push(&wire.Message{Trust: &wire.Trust{Timestamp: []byte("{}"), Snapshot: signed.Snapshot, Targets: signed.Targets}})
		synctest.Wait()
		if r := s.last(); !strings.Contains(r.Error, "malformed") && !strings.Contains(r.Error, "not signed") {
			t.Fatalf("%+v", r)
		}

		three := s.sign("three")
		s.set(func() { s.tampered = true })
		s.desire(wire.Desired{Bundle: three, Rollout: 4})
		if r := s.await(wire.StateRefused, time.Minute); !strings.Contains(r.Error, "not what was signed") {
			t.Fatalf("%+v", r)
		}
		s.runs("two")
		s.set(func() { s.tampered = false })
		s.await(wire.StateConfirmed, 20*time.Minute) // once the controller gives what was signed
		s.runs("three")

		s.next.Floor = three
		s.sign("four")
		s.desire(wire.Desired{Bundle: two, Rollout: 5})
		if r := s.await(wire.StateRefused, time.Minute); !strings.Contains(r.Error, "floor") {
			t.Fatalf("%+v", r)
		}
		s.runs("three")
	})
}

// What cannot be recorded, or is too old by the host's clock, is reported, and is there a
// minute after that is over, though nobody tells the host.
func TestTakenAfterAll(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		reports := func(why string) {
			t.Helper()
			synctest.Wait()
			if r := s.last(); !strings.Contains(r.Error, why) || r.Running != 1 {
				t.Fatalf("%+v", r)
			}
		}
		check(t, os.Rename(s.dir, s.dir+".away"))
		two := s.sign("two")
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		reports("no such file")
		time.Sleep(time.Hour)
		reports("no such file")
		s.runs("one")
		check(t, os.Rename(s.dir+".away", s.dir))
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("two")

		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if r := s.last(); !strings.Contains(r.Error, "expired") {
			t.Fatalf("%+v", r)
		}
		s.freshen()
		time.Sleep(time.Minute)
		synctest.Wait()
		if r := s.last(); r.Error != "" {
			t.Fatalf("%+v", r)
		}
	})
}

// What the engine refuses is not asked again, unless by another roll-out.
func TestRefusedOnce(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		s.set(func() { s.kernel.refuse = "the policy breaks 1 line of /etc/sluice/guard.yaml" })
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		if r := s.await(wire.StateRefused, time.Minute); !strings.Contains(r.Error, "guard.yaml") {
			t.Fatalf("%+v", r)
		}
		s.set(func() { s.kernel.refuse = "" })
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		time.Sleep(time.Hour)
		s.await(wire.StateRefused, time.Minute)
		if len(s.kernel.seen) != 1 {
			t.Fatalf("asked %d times", len(s.kernel.seen))
		}
		s.desire(wire.Desired{Bundle: 1, Rollout: 2})
		s.await(wire.StateConfirmed, time.Minute)
	})
}

// The probes decide: of a policy that cuts the host off, the connection from before is the
// witness; without it the engine's own watcher goes back.
func TestReverted(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(*kernel)
		after time.Duration
		want  string
	}{
		"probe":      {func(k *kernel) { k.failed = "tcp 192.0.2.7:443" }, 10 * time.Second, "probe tcp 192.0.2.7:443: connection refused"},
		"new cut":    {func(k *kernel) { k.severs = true }, 10 * time.Second, "the one that was open still works"},
		"all is cut": {func(k *kernel) { k.kills = true }, 3 * time.Minute, "by any connection"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stage) {
				_, end := s.member()
				defer end()
				s.set(func() { s.kernel.probes = []string{"controller", "tcp 192.0.2.7:443"} })
				s.desire(wire.Desired{Bundle: 1, Rollout: 1})
				s.await(wire.StateConfirmed, time.Minute)
				two := s.sign("two")
				c.set(s.kernel)
				s.desire(wire.Desired{Bundle: two, Rollout: 2, ConfirmSeconds: 60})
				r := s.await(wire.StateReverted, c.after)
				s.runs("one")
				if !strings.Contains(r.Error, c.want) || r.Running != 1 || r.Proved.IsZero() {
					t.Fatalf("%+v", r)
				}
				s.set(func() { s.kernel.severs, s.kernel.kills, s.kernel.failed = false, false, "" })
				s.desire(wire.Desired{Bundle: two, Rollout: 2})
				time.Sleep(time.Hour)
				s.runs("one") // not again by the same roll-out
				s.desire(wire.Desired{Bundle: two, Rollout: 3})
				s.await(wire.StateConfirmed, time.Minute)
				s.runs("two")
			})
		})
	}
}

// Nothing is applied that a controller could not be asked about afterwards.
func TestUnreachableBefore(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		s.desire(wire.Desired{})
		synctest.Wait()
		s.blobs = nil
		s.set(func() { s.kernel.probes = []string{"controller"} })
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		time.Sleep(time.Minute)
		if len(s.kernel.seen) != 0 {
			t.Fatal("applied")
		}
	})
}

// What was done for a fleet that the host has left is nothing to the next one.
func TestEnrolledAnew(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		end()
		s.set(func() {
			s.kernel.runs, s.kernel.files = append(s.kernel.runs, "own"), append(s.kernel.files, "/etc/sluice/policy.yaml")
		})
		s.enrolled, s.reports = time.Now().Add(time.Hour), nil
		_, end = s.member()
		defer end()
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("one")
	})
}

// What runs already is not refused for what somebody did to its rules.
func TestDrift(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		const differs = "tcp to port 9999: meant drop (%sparts/10-base.yaml:3 default: drop), the kernel accept"
		s.set(func() { s.kernel.differs = fmt.Sprintf(differs, m.folder(1)+"/") })
		s.set(func() { s.kernel.probes = []string{"controller"} })
		s.desire(wire.Desired{Bundle: 1, Rollout: 2})
		r := s.await(wire.StateConfirmed, time.Minute)
		if r.Drift != fmt.Sprintf(differs, "") || !r.Proved.IsZero() { // by the file's name in the repository
			t.Fatalf("%+v", r)
		}
		m.Found("")
		if r := s.await(wire.StateConfirmed, time.Minute); r.Drift != "" || r.Proved.IsZero() {
			t.Fatalf("%+v", r)
		}
	})
}

// The newest word counts: what is under way for an older one ends, and is taken back.
func TestSuperseded(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		two := s.sign("two")
		s.set(func() { s.kernel.kills = true })
		s.set(func() { s.kernel.probes = []string{"controller"} })
		s.desire(wire.Desired{Bundle: two, Rollout: 2, ConfirmSeconds: 600})
		time.Sleep(20 * time.Second)
		s.set(func() { s.kernel.kills = false })
		s.set(func() { s.cut, s.dead = false, false })
		three := s.sign("three")
		s.desire(wire.Desired{Bundle: three, Rollout: 3})
		s.await(wire.StateConfirmed, 10*time.Minute)
		s.runs("three")
	})
}

// TestStillDesired: what was heard of long ago, and could not be had, is not brought into force
// before a controller says that it still is desired.
func TestStillDesired(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.prepared(func(m *Member) { m.Times.Reconnect = time.Hour }) // so that no stream tells it first
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		two := s.sign("two")
		s.set(func() { s.cut = true })
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		synctest.Wait()
		s.mu.Lock()
		streams := slices.Collect(maps.Keys(s.streams))
		s.mu.Unlock()
		for _, c := range streams {
			c.Cut()
		}
		time.Sleep(time.Minute)
		s.set(func() {
			s.cut = false
			s.desired.Bundle, s.desired.Order.Revision = 1, s.desired.Order.Revision+1
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := m.now().Desired.Bundle; got != 1 {
			t.Errorf("bundle %d is desired", got)
		}
		s.set(func() {
			if slices.Contains(s.kernel.seen, "two") {
				t.Errorf("applied were %q", s.kernel.seen)
			}
		})
	})
}

// Files that come with what is desired are not fetched, and those that are others than was
// signed are.
func TestGiven(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		two, all := s.sign("two"), [][]byte{}
		for _, text := range s.blobs {
			all = append(all, text)
		}
		had := s.blobs
		s.set(func() { s.blobs = nil })
		s.desire(wire.Desired{Bundle: two, Rollout: 1, Blobs: all})
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("two")
		s.set(func() { s.blobs = had })
		three := s.sign("three")
		s.desire(wire.Desired{Bundle: three, Rollout: 2, Blobs: [][]byte{[]byte("version: 1\n# three, and more\n")}})
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("three")
	})
}

// A change is one report of a host, and none of its bans; of what is the same in both bundles
// the disk has one file.
func TestSaidOnce(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		s.logs(false, "ban 192.0.2.1 1h")
		s.bans("192.0.2.1")
		two := s.sign("two")
		reports, told := len(s.reports), s.log.told
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		s.await(wire.StateConfirmed, time.Minute)
		time.Sleep(2 * reportEvery)
		s.set(func() {
			if got := s.reports[reports:]; len(got) != 1 || s.log.told != told {
				t.Errorf("%d reports: %+v; bans told %d times", len(got), got, s.log.told-told)
			}
		})
		for path, want := range map[string]bool{"fleet.yaml": true, "parts/10-base.yaml": false} {
			one, other := must(os.Stat(filepath.Join(m.folder(1), path))), must(os.Stat(filepath.Join(m.folder(two), path)))
			if os.SameFile(one, other) != want {
				t.Errorf("%s is one file: %v", path, !want)
			}
		}
	})
}

// A host whose owner has applied a policy of his own is left alone, and says so.
func TestDetached(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		check(t, os.WriteFile(filepath.Join(s.dir, detachedName), nil, 0o600))
		s.set(func() {
			s.kernel.runs, s.kernel.files = append(s.kernel.runs, "own"), append(s.kernel.files, "/etc/sluice/policy.yaml")
		})
		m.Look()
		two := s.sign("two")
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		time.Sleep(time.Hour)
		s.runs("own")
		if r := m.Report(); !strings.Contains(r.Error, "detached") || r.Running != 0 {
			t.Fatalf("%+v", r)
		}
		// It is not waited for by whoever has bundles fetched.
		three := s.sign("three")
		s.desire(wire.Desired{Bundle: two, Rollout: 2, Prefetch: &wire.Prefetch{Bundle: three, Rollout: 3}})
		s.await(wire.StateFetched, time.Minute)
		synctest.Wait()
		s.runs("own")
		if r := m.Report(); !strings.Contains(r.Error, "detached") || r.Bundle != three {
			t.Fatalf("%+v", r)
		}
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		synctest.Wait()
		check(t, os.Remove(filepath.Join(s.dir, detachedName)))
		m.Look()
		s.await(wire.StateConfirmed, time.Minute)
		s.runs("one")
	})
}
