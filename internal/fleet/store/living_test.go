package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/base/addrset"
)

// holdOf is a ban, whose ID is what it bans.
func holdOf(what string, of time.Duration) Hold {
	return Hold{Living{ID: "ban " + what, Kind: "ban", What: what, Hosts: "role=web", Reason: "ssh"}, of}
}

// whats are what entries are about, sorted.
func whats(entries []Living) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.What)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// numbers says that entries are those from one number to another.
func numbers(t testing.TB, what string, entries []Living, first, last int64) {
	t.Helper()
	if int64(len(entries)) != last-first+1 {
		t.Errorf("%s: %d entries, not those from %d to %d", what, len(entries), first, last)
		return
	}
	for i, e := range entries {
		if e.Seq != first+int64(i) {
			t.Errorf("%s: entry %d has the number %d", what, i, e.Seq)
		}
	}
}

func TestLiving(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		_, err := s.Hold(ctx, operator, 10, false, []Hold{holdOf("203.0.113.7", time.Hour)})
		is(t, "a ban of no fleet", err, ErrNotFound)
		fleet(t, s)
		log := good[LivingLog](t)(s.LivingAfter(ctx, 0, 10))
		if log.Seq != 0 || log.Whole || log.Incarnation != 1 || time.Since(log.Now).Abs() > time.Minute {
			t.Errorf("an empty log: %+v", log)
		}
		hold := func(by int, keep bool, holds ...Hold) []Living {
			t.Helper()
			before := good[Clock](t)(s.clockOf(ctx, s.reader))
			var written []Living
			revises(t, s, "bans", 0, func() (err error) {
				written, err = s.Hold(ctx, operator, 10, keep, holds)
				return err
			})
			numbers(t, "written", written, before.Seq+1, before.Seq+int64(by))
			return written
		}
		first := hold(2, false, holdOf("203.0.113.7", time.Hour), holdOf("2001:db8::/48", time.Minute))
		if e := first[0]; e.Who != operator || e.Expires.Sub(e.Made) != time.Hour || e.Reason != "ssh" || e.Hosts != "role=web" {
			t.Errorf("%+v", e)
		}
		hold(1, false, holdOf("203.0.113.7", time.Minute))                   // in place of the first
		hold(1, false, holdOf("198.51.100.1", 1), holdOf("198.51.100.1", 1)) // the last one, and over at once
		hold(0, true, holdOf("203.0.113.7", time.Second))                    // shorter
		longer := hold(1, true, holdOf("203.0.113.7", 2*time.Hour))          // longer
		hold(1, false, holdOf("203.0.113.0-203.0.113.9", 24*time.Hour))      // and another
		same(t, "asked for nothing", hold(0, false), nil)

		at, all, err := s.Holding(ctx, "", "", 10)
		is(t, "holding", err, nil)
		same(t, "number", at.Seq, 6)
		same(t, "what holds", whats(all), "2001:db8::/48 203.0.113.0-203.0.113.9 203.0.113.7")
		_, some, err := s.Holding(ctx, "ban", all[0].ID, 1)
		is(t, "holding", err, nil)
		same(t, "the second", some, all[1:2])
		if !slices.ContainsFunc(all, func(e Living) bool { return e == longer[0] }) {
			t.Errorf("%+v is not in %+v", longer[0], all)
		}
		for within, want := range map[string]string{
			"203.0.113.7": "203.0.113.7", "203.0.113.0/24": "203.0.113.0-203.0.113.9 203.0.113.7", "203.0.113.8/29": "", "0.0.0.0/0": "203.0.113.0-203.0.113.9 203.0.113.7",
			"::/0": "2001:db8::/48", "2001:db8::/49": "", "198.51.100.0/24": "",
		} {
			same(t, within, whats(good[[][]Living](t)(s.Within(ctx, "ban", addrset.MustParseRange(within)))[0]), want)
		}
		same(t, "allows", len(good[[][]Living](t)(s.Within(ctx, "allow", addrset.MustParseRange("0.0.0.0/0")))[0]), 0)

		same(t, "one", good[Living](t)(s.Held(ctx, "ban", longer[0].ID)), longer[0])
		for _, id := range []string{"ban 198.51.100.1", "nothing"} {
			_, err = s.Held(ctx, "ban", id)
			is(t, id, err, ErrNotFound)
		}
		_, err = s.Held(ctx, "allow", longer[0].ID)
		is(t, "a ban as an allow", err, ErrNotFound)

		var lifted []Living
		revises(t, s, "lifted", 0, func() (err error) {
			lifted, err = s.Lift(ctx, operator, "unban", "mine", []string{"ban 203.0.113.7", "ban 203.0.113.7", "nothing", "ban 198.51.100.1"})
			return err
		})
		if len(lifted) != 1 || lifted[0].Kind != "unban" || lifted[0].ID != "ban 203.0.113.7" || lifted[0].Reason != "mine" || lifted[0].Hosts != "role=web" {
			t.Errorf("lifted: %+v", lifted)
		}
		same(t, "lifted again", len(good[[]Living](t)(s.Lift(ctx, operator, "unban", "", []string{"ban 203.0.113.7"}))), 0)

		log = good[LivingLog](t)(s.LivingAfter(ctx, 2, 10))
		numbers(t, "log", log.Entries, 3, 7)
		same(t, "the last of the log", log.Entries[4], lifted[0])
		numbers(t, "some", good[LivingLog](t)(s.LivingAfter(ctx, 0, 3)).Entries, 1, 3)
		numbers(t, "none", good[LivingLog](t)(s.LivingAfter(ctx, 7, 3)).Entries, 8, 7)
		if !good[LivingLog](t)(s.LivingAfter(ctx, 8, 3)).Whole {
			t.Error("a log has what is not in it")
		}

		many := make([]Hold, 9)
		for i := range many {
			many[i] = holdOf(fmt.Sprintf("198.51.100.%d", i), time.Hour)
		}
		_, err = s.Hold(ctx, operator, 10, false, many)
		is(t, "too many", err, ErrTooLarge)
		same(t, "nothing of them", good[LivingLog](t)(s.LivingAfter(ctx, 7, 10)).Seq, 7)
		hold(8, false, many[:8]...)

		entries := good[[]Entry](t)(s.Audit(ctx, 0, 100))
		if last := entries[len(entries)-1]; last.What != "ban" || last.Who != operator || !strings.Contains(string(last.Diff), "198.51.100.7") {
			t.Errorf("%+v", last)
		}
		is(t, "incarnation", s.NewIncarnation(ctx, operator, 2), nil)
		log = good[LivingLog](t)(s.LivingAfter(ctx, 15, 10))
		same(t, "incarnation", log.Incarnation, 2)
		same(t, "a log goes on", log.Seq, 15)
	})
}

func TestApplied(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2")
		now := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
		revises(t, s, "what hosts say", 0, func() error {
			return s.PutApplied(ctx, []Applied{
				{Host: "web-1", Said: "old", At: now},
				{Host: "web-1", Said: "new", At: now.Add(time.Second)},
				{Host: "web-2", Said: "\x00", At: now},
				{Host: "nowhere", Said: "x", At: now},
			})
		})
		is(t, "what comes late", s.PutApplied(ctx, []Applied{{Host: "web-1", Said: "late", At: now}}), nil)
		all := good[[]Applied](t)(s.Applied(ctx))
		if len(all) != 2 || all[0] != (Applied{Host: "web-1", Said: "new", At: now.Add(time.Second)}) {
			t.Errorf("%+v", all)
		}
		same(t, "one", good[[]Applied](t)(s.Applied(ctx, "web-2")), all[1:])
		same(t, "none", len(good[[]Applied](t)(s.Applied(ctx, "nowhere"))), 0)
	})
}

// TestLivingCut has the log forget what is old, and never its last number.
func TestLivingCut(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		next := func(before int64) { // writes an entry behind this number
			t.Helper()
			is(t, "renumbered", s.write(ctx, func(t *tx) error {
				_, err := t.do(fmt.Sprintf(`update living set seq = %[1]d, entry = replace(entry, '"seq":' || seq, '"seq":%[1]d') where seq = (select max(seq) from living)`, before))
				return err
			}), nil)
			numbers(t, "written", good[[]Living](t)(s.Hold(ctx, operator, 10, false, []Hold{holdOf("203.0.113.7", time.Hour)})), before+1, before+1)
		}
		next(0)
		next(10)
		next(keptLiving + 500)
		same(t, "it is not time yet", good[LivingLog](t)(s.LivingAfter(ctx, 9, 1)).Whole, false)
		next(keptLiving + 999)
		if !good[LivingLog](t)(s.LivingAfter(ctx, 9, 1)).Whole {
			t.Error("the log forgets nothing")
		}
		numbers(t, "log", good[LivingLog](t)(s.LivingAfter(ctx, keptLiving+998, 10)).Entries, keptLiving+999, keptLiving+1000)
	})
}

// TestLivingOrder has several write at the same time, and another process read: the log
// has no gap, and none comes late.
func TestLivingOrder(t *testing.T) {
	for name, database := range map[string]func(testing.TB) string{"sqlite": sqliteDatabase, "postgres": postgresDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := database(t)
			s, reader := open(t, address), open(t, address)
			fleet(t, s)
			const writers, each = 4, 10
			var wait sync.WaitGroup
			for w := range writers {
				wait.Go(func() {
					for i := range each {
						what := fmt.Sprintf("203.0.%d.%d", w, i)
						_, err := s.Hold(t.Context(), operator, 1000, false, []Hold{holdOf(what, time.Hour), holdOf("198.51.100.1", time.Hour)})
						if err == nil && i%2 == 0 {
							_, err = s.Lift(t.Context(), operator, "unban", "", []string{"ban " + what, "ban 198.51.100.1"})
						}
						is(t, what, err, nil)
					}
				})
			}
			last := make(chan error, 1)
			go func() {
				wait.Wait()
				_, err := s.Hold(t.Context(), operator, 1000, false, []Hold{holdOf("192.0.2.1", time.Hour)})
				last <- err
			}()
			holds := map[string]bool{}
			var at Clock
			for done := false; !done; {
				if err := reader.WaitLiving(t.Context(), Clock{Incarnation: 1, Seq: at.Seq}); err != nil {
					t.Fatal(err)
				}
				log := good[LivingLog](t)(reader.LivingAfter(t.Context(), at.Seq, 7))
				if log.Whole || log.Now.Before(at.Now) {
					t.Fatalf("after %d: %+v", at.Seq, log)
				}
				numbers(t, "read", log.Entries, at.Seq+1, at.Seq+int64(len(log.Entries)))
				for _, e := range log.Entries {
					holds[e.What] = e.Kind == "ban"
					done = done || e.What == "192.0.2.1"
				}
				at.Seq, at.Now = at.Seq+int64(len(log.Entries)), log.Now
			}
			is(t, "the last one", <-last, nil)
			_, all, err := reader.Holding(t.Context(), "ban", "", 1000)
			is(t, "holding", err, nil)
			for _, e := range all {
				if !holds[e.What] {
					t.Errorf("%s holds, and not by the log", e.What)
				}
				delete(holds, e.What)
			}
			for what, is := range holds {
				if is {
					t.Errorf("%s holds by the log alone", what)
				}
			}
		})
	}
}
