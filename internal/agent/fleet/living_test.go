package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// livingLog is what a stage's controller bans and lets in.
type livingLog struct {
	entries []trust.Living
	ahead   time.Duration // of the database's clock
	part    int           // IDs of a part of the whole; 0: all
	gone    int64         // up to where the log is gone
	asked   []string
	applied wire.LiveApplied
	told    int // how often that came
}

// livingKernel is what a stage's kernel bans, by IDs.
type livingKernel struct {
	has     map[string]LivingItem
	fails   error
	flushed bool // it does not have them
	took    int  // changes
	lasts   time.Duration
}

func (k *kernel) Live(_ context.Context, change *Living) (*Lived, error) {
	time.Sleep(k.living.lasts)
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &k.living
	if l.fails != nil {
		return nil, l.fails
	}
	if len(change.Set)+len(change.Lift) > 0 {
		l.took++
	}
	if l.has == nil {
		l.has = map[string]LivingItem{}
	}
	out := &Lived{Refused: map[string]string{}, Proved: !l.flushed}
	set := map[string]bool{}
	for _, is := range change.Set {
		set[is.ID] = true
		if is.What.From.String() == "198.51.100.1" {
			out.Refused[is.ID] = "it is never banned"
			continue
		}
		l.has[is.ID] = is
	}
	for _, id := range change.Lift {
		delete(l.has, id)
	}
	maps.DeleteFunc(l.has, func(id string, _ LivingItem) bool {
		return change.Whole && !set[id] && id > change.From && (change.To == "" || id <= change.To)
	})
	return out, nil
}

// log adds "KIND ADDRESS TIME [SELECTOR]", and reports it unless it is silent.
func (s *stage) logs(silent bool, lines ...string) {
	s.t.Helper()
	s.mu.Lock()
	now := time.Now().Add(s.log.ahead)
	after := int64(len(s.log.entries))
	for i, line := range lines {
		words := strings.SplitN(line, " ", 4)
		e := trust.Living{Seq: after + 1 + int64(i), Kind: words[0], What: words[1], Made: now, Expires: now, Who: "alice", Reason: "scans"}
		if length, err := time.ParseDuration(words[2]); err == nil {
			e.Expires = now.Add(length)
		}
		if len(words) == 4 {
			e.Hosts = words[3]
		}
		e.ID = trust.LivingID(e.Kind, e.What, "", e.Hosts)
		s.log.entries = append(s.log.entries, e)
	}
	in := s.sealed(trust.Bans{After: after, Now: now, Entries: s.log.entries[after:]}, int64(len(s.log.entries)))
	s.mu.Unlock()
	if !silent {
		s.push(&wire.Message{Live: in})
	}
}

func (s *stage) sealed(b trust.Bans, seq int64) *wire.Live {
	return &wire.Live{Envelope: must(s.online.SignLive(trust.KindBans, seq, b))}
}

func (s *stage) Living(_ context.Context, has wire.Living, from string) (*wire.Live, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.log
	if s.cut {
		return nil, errCut
	}
	l.asked = append(l.asked, fmt.Sprintf("%d/%d %.3s", has.Incarnation, has.Seq, from))
	now, last := time.Now().Add(l.ahead), int64(len(l.entries))
	if has.Incarnation == s.online.State().Incarnation && has.Seq >= l.gone {
		return s.sealed(trust.Bans{After: has.Seq, Now: now, Entries: l.entries[has.Seq:]}, last), nil
	}
	holds := map[string]trust.Living{}
	for _, e := range l.entries {
		if delete(holds, e.ID); (e.Kind == trust.LivingBan || e.Kind == trust.LivingAllow) && e.Expires.After(now) {
			holds[e.ID] = e
		}
	}
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(holds)), func(id string) bool { return id <= from })
	b := trust.Bans{Whole: true, From: from, Now: now}
	more := l.part > 0 && len(ids) > l.part
	if more {
		ids = ids[:l.part]
		b.To = ids[len(ids)-1]
	}
	for _, id := range ids {
		b.Entries = append(b.Entries, holds[id])
	}
	out := s.sealed(b, last)
	out.More = more
	return out, nil
}

// bans lets time go by until the kernel has these addresses of bans and allows, and the
// controller was told that it is proved up to the end of the log.
func (s *stage) bans(want string) {
	s.t.Helper()
	var have []string
	var told wire.LiveApplied
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		synctest.Wait()
		s.set(func() {
			have = nil
			for _, is := range s.kernel.living.has {
				have = append(have, is.What.String())
			}
			told = s.log.applied
		})
		slices.Sort(have)
		if strings.Join(have, " ") == want && told.Living.Seq == int64(len(s.log.entries)) && !told.Proved.IsZero() && told.Waiting == "" {
			return
		}
	}
	s.t.Fatalf("the kernel has %q, want %q; told was %+v", have, want, told)
}

func (s *stage) running() func() {
	s.t.Helper()
	_, end := s.member()
	s.desire(wire.Desired{Bundle: 1, Rollout: 1})
	s.await(wire.StateConfirmed, time.Minute)
	return end
}

// What the fleet bans comes to this host where it is for it, at its time by the host's own
// clock, and what the host refuses is told by its ID for as long as it would hold.
func TestLiving(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.log.ahead = -5 * time.Hour
		s.logs(true, "ban 192.0.2.1 1h", "ban 192.0.2.2 1h role=db", "ban 192.0.2.3 1h host=web-1")
		end := s.running()
		defer func() { end() }()
		s.bans("192.0.2.1 192.0.2.3")
		s.logs(false, "ban 192.0.2.4 1h", "unban 192.0.2.1 0s")
		s.bans("192.0.2.3 192.0.2.4")
		for _, is := range s.kernel.living.has {
			if left := time.Until(is.Until); left < 58*time.Minute || left > time.Hour || is.Who != "alice" || is.Reason != "scans" {
				t.Errorf("%+v ends in %v", is, left)
			}
		}
		s.logs(false, "ban 198.51.100.1 10m")
		s.bans("192.0.2.3 192.0.2.4")
		id := trust.LivingID(trust.LivingBan, "198.51.100.1", "", "")
		if r := s.applied().Refused; len(r) != 1 || r[0].Id != id || r[0].Why != "it is never banned" {
			t.Errorf("%+v", r)
		}
		// The next agent knows where this one has got to, and tells the same.
		asked := len(s.asked())
		end()
		time.Sleep(time.Minute)
		_, end = s.member()
		s.bans("192.0.2.3 192.0.2.4")
		if len(s.asked()) != asked || len(s.applied().Refused) != 1 {
			t.Errorf("asked again: %q, refused %+v", s.asked()[asked:], s.applied().Refused)
		}
		time.Sleep(10 * time.Minute)
		s.logs(false, "ban 192.0.2.5 1h")
		s.bans("192.0.2.3 192.0.2.4 192.0.2.5")
		if r := s.applied().Refused; len(r) > 0 {
			t.Errorf("what is over is refused: %+v", r)
		}
	})
}

// What was lost on the way is fetched: from the log, or as a whole where that is gone.
func TestLivingGaps(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		defer s.running()()
		s.logs(false, "ban 192.0.2.1 1h")
		s.bans("192.0.2.1")
		s.logs(true, "ban 192.0.2.2 1h", "ban 192.0.2.3 1h")
		s.logs(false, "unban 192.0.2.2 0s")
		s.bans("192.0.2.1 192.0.2.3")
		if asked := s.asked()[len(s.asked())-1]; !strings.HasPrefix(asked, "1/1") {
			t.Errorf("asked was %q", s.asked())
		}
		// A message that comes again, or late, changes nothing.
		took := s.kernel.living.took
		s.push(&wire.Message{Live: s.sealed(trust.Bans{After: 0, Now: time.Now(), Entries: s.log.entries[:1]}, 1)})
		s.push(&wire.Message{Live: s.sealed(trust.Bans{After: 3, Now: time.Now(), Entries: s.log.entries[3:]}, 4)})
		time.Sleep(time.Second)
		s.bans("192.0.2.1 192.0.2.3")
		if s.kernel.living.took != took {
			t.Error("it was applied twice")
		}
		// The log is gone, and the whole comes in parts.
		s.set(func() { s.log.part = 2 })
		s.logs(true, "unban 192.0.2.1 0s", "ban 192.0.2.4 1h", "ban 192.0.2.5 1h", "ban 192.0.2.6 1h", "ban 192.0.2.7 1h")
		s.set(func() { s.log.gone = int64(len(s.log.entries)) })
		s.push(&wire.Message{Live: &wire.Live{}})
		s.bans("192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.7")
		// More messages than wait are asked for.
		s.set(func() { s.kernel.living.fails = errors.New("the disk is full") })
		for i := range 2 * mostHeard {
			s.logs(false, fmt.Sprintf("ban 203.0.113.%d 1h", i))
		}
		time.Sleep(time.Second)
		if w := s.applied().Waiting; w != "the disk is full" || !s.applied().Proved.IsZero() {
			t.Errorf("%+v", s.applied())
		}
		s.set(func() { s.kernel.living.fails = nil })
		for i := range 2 * mostHeard {
			s.logs(false, fmt.Sprintf("unban 203.0.113.%d 0s", i))
		}
		s.bans("192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.7")
	})
}

// A message that was held up makes nothing last longer, and one that nobody signed counts for
// nothing.
func TestLivingLate(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		defer s.running()()
		s.logs(false, "ban 192.0.2.9 1h")
		s.bans("192.0.2.9")
		s.logs(true, "allow 192.0.2.1 30m")
		late := s.sealed(trust.Bans{After: 1, Now: time.Now(), Entries: s.log.entries[1:]}, 2)
		forged := *late
		forged.Envelope = []byte(strings.Replace(string(late.Envelope), `"payload":"`, `"payload":"AA`, 1))
		s.push(&wire.Message{Live: &forged})
		time.Sleep(20 * time.Minute)
		ends := s.log.entries[1].Expires
		s.set(func() { s.kernel.living.has = nil })
		s.push(&wire.Message{Live: late})
		time.Sleep(time.Second)
		for _, is := range s.kernel.living.has {
			if is.Allow && is.Until.After(ends.Add(time.Second)) {
				t.Errorf("it is let in until %v, and was to be until %v", is.Until, ends)
			}
		}
	})
}

// A controller whose database is ahead of it gives the whole again and again: the host has what
// is in it, and asks no more often than where an answer failed.
func TestLivingBehindItself(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		defer s.running()()
		s.set(func() { s.log.gone = 1 << 40 })
		s.logs(false, "ban 192.0.2.9 1h")
		time.Sleep(time.Minute)
		s.set(func() {
			if len(s.kernel.living.has) != 1 || len(s.log.asked) > 60 {
				t.Errorf("%v is banned, after %d questions", s.kernel.living.has, len(s.log.asked))
			}
			s.log.gone = 0
		})
		s.bans("192.0.2.9")
	})
}

// A controller that says nothing about a ban, or that it was lifted, has its way with the host until
// the ban ends, and no longer: it was signed with that end.
func TestLivingWithheld(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		defer s.running()()
		s.logs(false, "ban 192.0.2.9 1h")
		s.bans("192.0.2.9")
		withheld := s.log.entries
		s.logs(true, "ban 192.0.2.10 1h", "unban 192.0.2.9 0s")
		s.set(func() { s.log.entries = s.log.entries[:1] }) // nor does it say so to whoever asks
		time.Sleep(40 * time.Minute)
		s.bans("192.0.2.9")
		ends := withheld[0].Expires
		s.set(func() {
			for _, is := range s.kernel.living.has {
				if is.Until.After(ends.Add(time.Second)) {
					t.Errorf("it is banned until %v, and was to be until %v", is.Until, ends)
				}
			}
		})
	})
}

// Another file of the fleet has all judged again, and so do other labels; what the kernel lost
// is not proved until it has it again.
func TestLivingJudgedAnew(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		defer s.running()()
		s.logs(false, "ban 192.0.2.1 1h", "ban 198.51.100.1 1h")
		s.bans("192.0.2.1")
		s.next.File = s.file("fleet.yaml", "version: 1\nbans: {}\n")
		two := s.sign("two")
		before := len(s.asked())
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		s.await(wire.StateConfirmed, time.Minute)
		s.bans("192.0.2.1")
		if asked := strings.Join(s.asked()[before:], ","); !strings.HasPrefix(asked, "0/0") {
			t.Errorf("asked was %q", asked)
		}
		before = len(s.asked())
		s.next.File = s.file("fleet.yaml", "version: 1\nbans: {}  # few\nroll-out: {settle: none}\naccess: []\napprove: [publish]\nshare-bans: {after: 2 hosts, for: 1h}\n")
		three := s.sign("three") // of the same bounds
		s.desire(wire.Desired{Bundle: three, Rollout: 3})
		s.await(wire.StateConfirmed, time.Minute)
		s.bans("192.0.2.1")
		if asked := strings.Join(s.asked()[before:], ","); strings.Contains(asked, "0/0") {
			t.Errorf("asked was %q", asked)
		}
	})
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		s.logs(false, "ban 192.0.2.1 1h")
		s.bans("192.0.2.1")
		s.set(func() { s.kernel.living.flushed = true })
		m.Found("the set of bans is gone")
		time.Sleep(time.Second)
		synctest.Wait()
		s.set(func() {
			if !s.log.applied.Proved.IsZero() || s.log.applied.Waiting == "" {
				t.Errorf("%+v", s.log.applied)
			}
			s.kernel.living.flushed = false
		})
		s.bans("192.0.2.1")
	})
}

func TestClockOfDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c dbClock
		off := 3 * time.Hour
		c.hear(time.Now().Add(-off), time.Time{})
		ends := time.Now().Add(time.Hour - off) // by the database
		time.Sleep(10 * time.Minute)
		c.hear(time.Now().Add(-off-8*time.Minute), time.Time{}) // held up
		if left := c.left(ends); left != 50*time.Minute {
			t.Errorf("%v are left", left)
		}
		c.hear(time.Now().Add(-off+time.Minute), time.Time{}) // the first one was held up too
		if left := c.left(ends); left != 49*time.Minute {
			t.Errorf("%v are left", left)
		}
		// It was set back: a message alone, which may be held up, does not say so.
		back := time.Now().Add(-2 * off)
		c.hear(back, time.Time{})
		if left := c.left(ends); left != 49*time.Minute || !c.behind(back) {
			t.Errorf("%v are left", left)
		}
		asked := time.Now()
		time.Sleep(10 * time.Second)
		c.hear(back, asked)
		if left := c.left(back.Add(time.Minute)); left != 50*time.Second || c.behind(back) {
			t.Errorf("%v are left", left)
		}
		time.Sleep(2 * time.Hour)
		c.hear(time.Now().Add(-2*off), time.Time{}) // the database's clock was set
		if left := c.left(time.Now().Add(-2*off + time.Minute)); left != time.Minute {
			t.Errorf("%v are left", left)
		}
	})
}

// A database whose clock is set back ends no ban early, and has none hold for longer than it
// was made for.
func TestDatabaseSetBack(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		defer s.running()()
		s.logs(false, "ban 192.0.2.9 1h")
		s.bans("192.0.2.9")
		s.set(func() { s.log.ahead = -30 * time.Minute })
		made := time.Now()
		s.logs(false, "ban 192.0.2.1 20m")
		s.bans("192.0.2.1 192.0.2.9")
		s.set(func() {
			for _, is := range s.kernel.living.has {
				if want := made.Add(20 * time.Minute); is.What.From.String() == "192.0.2.1" && is.Until.Sub(want).Abs() > 2*time.Second {
					t.Errorf("it is banned until %v, and was to be until %v", is.Until, want)
				}
			}
		})
		s.next.File = s.file("fleet.yaml", "version: 1\nbans: {}\n")
		two := s.sign("two")
		s.desire(wire.Desired{Bundle: two, Rollout: 2})
		s.await(wire.StateConfirmed, time.Minute)
		s.bans("192.0.2.1 192.0.2.9")
		s.set(func() {
			for _, is := range s.kernel.living.has {
				if most := time.Now().Add(time.Hour); is.Until.After(most) {
					t.Errorf("%s is banned until %v, %v after all that it was made for", is.What, is.Until, is.Until.Sub(most))
				}
			}
		})
	})
}

// What comes while the kernel is busy is one change: a host that is slower than the fleet bans
// does not fall behind.
func TestLivingKeepsUp(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		s.kernel.living.lasts = 300 * time.Millisecond
		defer s.running()()
		s.logs(false, "ban 192.0.2.1 1h")
		s.bans("192.0.2.1")
		took := s.kernel.living.took
		for n := range 100 {
			s.logs(false, fmt.Sprintf("ban 192.0.2.%d 1h", 2+n%3), "unban 192.0.2.1 0s", fmt.Sprintf("unban 192.0.2.%d 0s", 2+(n+1)%3))
			time.Sleep(20 * time.Millisecond)
		}
		s.bans("192.0.2.2 192.0.2.4")
		if took = s.kernel.living.took - took; took > 10 {
			t.Errorf("100 messages in 2 s are %d changes of a kernel that takes 0.3 s for one", took)
		}
	})
}

// applied is what the host has said last of bans and allows.
func (s *stage) applied() (is wire.LiveApplied) {
	s.set(func() { is = s.log.applied })
	return is
}

// asked are the places of the log behind which the host has asked.
func (s *stage) asked() (is []string) {
	s.set(func() { is = slices.Clone(s.log.asked) })
	return is
}
