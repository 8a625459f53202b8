package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestNotices: of one thing one notice is open, whoever begins it; what ended stays as it was.
func TestNotices(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		drift := Notice{Kind: "drift", Subject: "web-1", Text: "a", Since: now}
		var both sync.WaitGroup
		for range 4 {
			both.Go(func() {
				is(t, "begin", s.ChangeNotices(ctx, []Notice{drift, {Kind: "drift", Subject: "web-2", Text: "b", Since: now}}, nil), nil)
			})
		}
		both.Wait()
		for range 2 { // a number that two took at once is none's
			is(t, "begin", s.ChangeNotices(ctx, []Notice{drift, {Kind: "drift", Subject: "web-2", Text: "b", Since: now}}, nil), nil)
		}
		open := good[[]Notice](t)(s.Notices(ctx, false))
		if len(open) != 2 {
			t.Fatalf("%+v", open)
		}
		ended := open[0]
		ended.Text, ended.Gone, ended.Ended = "c", now.Add(time.Minute), now.Add(time.Minute)
		is(t, "end", s.ChangeNotices(ctx, nil, []Notice{ended}), nil)
		again := ended
		again.Text, again.Ended = "d", time.Time{}
		is(t, "what has ended", s.ChangeNotices(ctx, nil, []Notice{again}), nil)
		same(t, "open", good[[]Notice](t)(s.Notices(ctx, false)), open[1:])
		same(t, "all", good[[]Notice](t)(s.Notices(ctx, true)), []Notice{ended, open[1]})
		begins := open[0]
		is(t, "once more", s.ChangeNotices(ctx, []Notice{begins}, nil), nil)
		all := good[[]Notice](t)(s.Notices(ctx, true))
		if len(all) != 3 || all[2].Number <= open[1].Number || all[2].Subject != begins.Subject {
			t.Errorf("%+v", all)
		}

		is(t, "receiver", s.AddReceiver(ctx, "ops", now), nil)
		is(t, "receiver", s.AddReceiver(ctx, "ops", now.Add(time.Hour)), nil)
		var held atomic.Int64
		for range 4 {
			both.Go(func() {
				mine, err := s.HoldReceiver(ctx, "ops", now, now.Add(time.Minute))
				is(t, "hold", err, nil)
				if mine {
					held.Add(1)
				}
			})
		}
		both.Wait()
		same(t, "who tells it", held.Load(), int64(1))
		r := Receiver{Name: "ops", Since: now, Next: now.Add(time.Minute), Failed: 1, Failures: 1, Failing: now, Failure: "no"}
		is(t, "put", s.PutReceiver(ctx, r, nil), nil)
		same(t, "receivers", good[[]Receiver](t)(s.Receivers(ctx)), []Receiver{r})
		hold := func(at time.Time) bool { return good[bool](t)(s.HoldReceiver(ctx, "ops", at, at.Add(time.Minute))) }
		if hold(now) || !hold(now.Add(time.Minute)) || hold(now.Add(time.Minute+time.Second)) || !hold(now.Add(3*time.Minute)) {
			t.Error("held at the wrong time")
		}
		unheard := func(since time.Time) (numbers []int64) {
			for _, n := range good[[]Heard](t)(s.Unheard(ctx, "ops", "ended", since)) {
				numbers = append(numbers, n.Number)
			}
			return numbers
		}
		opens := []int64{open[1].Number, all[2].Number}
		same(t, "unheard", unheard(now), append([]int64{ended.Number}, opens...))
		same(t, "unheard since it ended", unheard(now.Add(time.Hour)), opens)
		told := Told{Receiver: "ops", Notice: ended.Number, Event: "begins", At: now}
		is(t, "told", s.PutReceiver(ctx, r, []Told{told}), nil)
		told.Event, told.At = "ended", now.Add(time.Minute)
		is(t, "told", s.PutReceiver(ctx, r, []Told{told}), nil)
		same(t, "told", good[[]Told](t)(s.Told(ctx)), []Told{told})
		same(t, "unheard", unheard(now), opens)

		is(t, "prune", s.PruneNotices(ctx, now, 100), nil)
		same(t, "kept", len(good[[]Notice](t)(s.Notices(ctx, true))), 3)
		is(t, "prune", s.PruneNotices(ctx, now.Add(time.Hour), 100), nil)
		same(t, "kept", len(good[[]Notice](t)(s.Notices(ctx, true))), 2)
		same(t, "told", len(good[[]Told](t)(s.Told(ctx))), 0)
		is(t, "prune", s.PruneNotices(ctx, now, 0), nil)
		same(t, "open ones stay", len(good[[]Notice](t)(s.Notices(ctx, false))), 2)
		last := all[2]
		last.Gone, last.Ended = now, now
		is(t, "end", s.ChangeNotices(ctx, nil, []Notice{last}), nil)
		is(t, "prune", s.PruneNotices(ctx, now.Add(time.Hour), 0), nil)
		is(t, "begin", s.ChangeNotices(ctx, []Notice{begins}, nil), nil)
		if open := good[[]Notice](t)(s.Notices(ctx, false)); open[len(open)-1].Number != last.Number+1 {
			t.Errorf("a number comes again: %+v", open)
		}
	})
}
