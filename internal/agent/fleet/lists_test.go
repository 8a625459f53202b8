package fleet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

const (
	scanners = "scanners-0123456789ab.txt"
	tor      = "tor-0123456789ab.txt"
	others   = "others-0123456789ab.txt"
)

// list signs what a list holds, by number.
func (s *stage) list(name, text string, seq int64, allowCut bool) wire.LiveList {
	s.t.Helper()
	f := s.file(name, text)
	return wire.LiveList{Name: name, Envelope: must(s.online.SignLive(trust.ListKind(name), seq, trust.List{Name: name, SHA256: f.SHA256, Size: f.Size, AllowCut: allowCut}))}
}

// tries is how often lists were given to the kernel.
func (k *kernel) tries() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.taken
}

// applied is how often a policy was.
func (k *kernel) applied() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.seen)
}

// awaitLists lets time go by until the host reports lists as some function wants them.
func (s *stage) awaitLists(what string, fits func(map[string]wire.ListReport) bool) map[string]wire.ListReport {
	s.t.Helper()
	var last map[string]wire.ListReport
	for end := time.Now().Add(3 * time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
		synctest.Wait()
		last = map[string]wire.ListReport{}
		for _, l := range s.last().Lists {
			last[l.Name] = l
		}
		if fits(last) {
			return last
		}
	}
	s.t.Fatalf("%s: %+v", what, last)
	return nil
}

// What live lists hold comes into force by itself, without the policy, and stays: whatever the
// controller loses, and where one list cannot be had, the others are.
func TestLiveLists(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.set(func() { s.kernel.lists = map[string]string{scanners: "", tor: ""} })
		_, end := s.member()
		one := s.list(scanners, "192.0.2.1\n", 1, false)
		want := wire.Desired{Bundle: 1, Rollout: 1, Lists: []wire.LiveList{one, s.list(tor, "192.0.2.9\n", 1, false), s.list(others, "192.0.2.7\n", 1, false)}}
		s.desire(want)
		s.await(wire.StateConfirmed, time.Minute)
		got := s.awaitLists("both", func(l map[string]wire.ListReport) bool { return l[scanners].Sha256 != "" && l[tor].Sha256 != "" })
		if len(got) != 2 || got[scanners].Proved.IsZero() || got[scanners].Sha256 != wire.Hash([]byte("192.0.2.1\n")) {
			t.Fatalf("%+v", got)
		}
		has := func(name, text string) {
			t.Helper()
			s.kernel.mu.Lock()
			defer s.kernel.mu.Unlock()
			if s.kernel.lists[name] != text {
				t.Errorf("%s holds %q, want %q", name, s.kernel.lists[name], text)
			}
		}
		has(scanners, "192.0.2.1\n")
		has(tor, "192.0.2.9\n")
		applied := s.kernel.applied()

		// Of two that change, one would cut a connection.
		want.Lists = []wire.LiveList{s.list(scanners, "192.0.2.2\n", 2, false), s.list(tor, "# cut\n", 2, false)}
		s.desire(want)
		got = s.awaitLists("one refused", func(l map[string]wire.ListReport) bool { return l[tor].Error != "" })
		if got[scanners].Error != "" || got[scanners].Sha256 != wire.Hash([]byte("192.0.2.2\n")) || got[tor].Sha256 != wire.Hash([]byte("192.0.2.9\n")) || got[tor].Error != "1 live connection would be cut" {
			t.Fatalf("%+v", got)
		}
		has(scanners, "192.0.2.2\n")
		has(tor, "192.0.2.9\n")
		if i := slices.IndexFunc(s.fetched, func(f string) bool { return strings.HasPrefix(f, wire.Hash([]byte("192.0.2.2\n"))) }); s.fetched[i] != wire.Hash([]byte("192.0.2.2\n"))+" from "+wire.Hash([]byte("192.0.2.1\n")) {
			t.Errorf("fetched %q", s.fetched)
		}
		// It is tried again in an hour, not with each question for what is desired.
		tries := s.kernel.tries()
		time.Sleep(refusedTime - 10*time.Minute)
		synctest.Wait()
		if n := s.kernel.tries(); n != tries {
			t.Errorf("tried %d times within an hour", n-tries)
		}
		s.awaitLists("again", func(map[string]wire.ListReport) bool { return s.kernel.tries() > tries })
		want.Lists[1] = s.list(tor, "# cut\n", 3, true)
		s.desire(want)
		s.awaitLists("cut", func(l map[string]wire.ListReport) bool {
			return l[tor].Error == "" && l[tor].Sha256 != wire.Hash([]byte("192.0.2.9\n"))
		})
		has(tor, "# cut\n")

		// An older one, one that is not signed, and one that comes wrong are not taken.
		for _, bad := range []wire.LiveList{one, {Name: scanners, Envelope: json.RawMessage("{}")}, {Name: "../x", Envelope: one.Envelope}} {
			want.Lists[0] = bad
			s.desire(want)
			s.awaitLists("not taken", func(l map[string]wire.ListReport) bool { return l[bad.Name].Error != "" })
			has(scanners, "192.0.2.2\n")
		}
		s.set(func() { s.tampered = true })
		want.Lists[0] = s.list(scanners, "192.0.2.3\n", 4, false)
		s.desire(want)
		time.Sleep(time.Minute)
		has(scanners, "192.0.2.2\n")
		s.set(func() { s.tampered = false })
		s.awaitLists("whole again", func(l map[string]wire.ListReport) bool {
			return l[scanners].Error == "" && l[scanners].Sha256 == wire.Hash([]byte("192.0.2.3\n"))
		})

		// The next agent asks nobody, and what else is loaded gets the lists again.
		end()
		s.set(func() { s.kernel.loaded++; s.kernel.lists[scanners] = "" })
		_, end = s.member()
		defer end()
		s.awaitLists("after a restart", func(map[string]wire.ListReport) bool {
			s.kernel.mu.Lock()
			defer s.kernel.mu.Unlock()
			return s.kernel.lists[scanners] == "192.0.2.3\n"
		})
		if n := s.kernel.applied(); n != applied {
			t.Errorf("the policy was applied %d times more", n-applied)
		}
	})
}

// What a list was when it was signed comes with the bundle, once: a new one as what it
// differs from the one that is here.
func TestLists(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		const name = trust.URLLists + "/scanners-0123456789ab.txt"
		m, end := s.member()
		defer end()
		s.next.Lists = []trust.File{s.file(name, "192.0.2.1\n"), s.file("parts/some.txt", "192.0.2.9\n")}
		s.next.Lists[1].Selector = "role=other"
		run := func(part string) (dir string) {
			t.Helper()
			s.mu.Lock()
			s.fetched = nil
			s.mu.Unlock()
			number := s.sign(part)
			s.desire(wire.Desired{Bundle: number, Rollout: number})
			s.await(wire.StateConfirmed, time.Minute)
			s.runs(part)
			return m.folder(number)
		}
		asked := func(hash string) (from string) {
			for _, f := range s.fetched {
				if what, base, _ := strings.Cut(f, " from "); what == hash {
					return base
				}
			}
			return ""
		}
		old := s.next.Lists[0].SHA256
		dir := run("two")
		view, err := os.ReadFile(filepath.Join(dir, viewName))
		check(t, err)
		if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != "192.0.2.1\n" || err != nil || !strings.Contains(string(view), "lists: trust/lists\n") {
			t.Errorf("%q %v\n%s", text, err, view)
		}
		if asked(old) == "" || asked(s.next.Lists[1].SHA256) != "" {
			t.Errorf("fetched %q", s.fetched)
		}
		if run("three"); asked(old) != "" {
			t.Errorf("a list that is here is fetched again: %q", s.fetched)
		}
		s.next.Lists[0] = s.file(name, "192.0.2.1\n192.0.2.2\n")
		if run("four"); asked(s.next.Lists[0].SHA256) != old {
			t.Errorf("not asked for as what differs from %s: %q", old, s.fetched)
		}
		s.next.Lists = s.next.Lists[1:]
		if view, err := os.ReadFile(filepath.Join(run("five"), viewName)); err != nil || strings.Contains(string(view), "lists") {
			t.Errorf("%v\n%s", err, view)
		}
	})
}
