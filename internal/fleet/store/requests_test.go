package store

import (
	"fmt"
	"testing"
	"time"
)

func TestRequests(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		s.Now = func() time.Time { return now }
		ask := func(who, body string) Request {
			t.Helper()
			now = now.Add(time.Microsecond)
			return good[Request](t)(s.Ask(ctx, Request{What: "ban", Operation: "ban", Method: "POST", Path: "/x", Who: who, Access: "a", Body: []byte(body)}))
		}
		one := ask("user:erika", "{\"a\": \"\x00\"}")
		got := good[Request](t)(s.Request(ctx, one.ID))
		same(t, "what was asked", fmt.Sprintf("%q %s", got.Body, got.Sum()), fmt.Sprintf("%q %s", one.Body, one.ID))
		_, err := s.Request(ctx, "x")
		is(t, "an unknown one", err, ErrNotFound)
		is(t, "decided on, an unknown one", s.Decide(ctx, "x", operator, RequestApproved, "", false), ErrNotFound)
		is(t, "done before it is approved", s.Performed(ctx, one.ID, "", nil), ErrConflict)
		is(t, "approved", s.Decide(ctx, one.ID, operator, RequestApproved, "fine", true), nil)
		is(t, "approved twice", s.Decide(ctx, one.ID, operator, RequestApproved, "", false), ErrConflict)
		is(t, "refused afterwards", s.Decide(ctx, one.ID, operator, RequestRefused, "", false), ErrConflict)
		is(t, "done", s.Performed(ctx, one.ID, "", []byte(`{"a":1}`)), nil)
		is(t, "done twice", s.Performed(ctx, one.ID, "no", nil), ErrConflict)
		got = good[Request](t)(s.Request(ctx, one.ID))
		same(t, "what came of it", fmt.Sprintf("%s %s %s %v %s", got.State, got.By, got.Why, got.Alone, got.Answer), "done operator:erika fine true {\"a\":1}")
		other := ask("user:max", "{}")
		is(t, "refused", s.Decide(ctx, other.ID, operator, RequestRefused, "no", false), nil)
		same(t, "of a refused one", len(good[Request](t)(s.Request(ctx, other.ID)).Body), 0)
		late := ask("user:max", "{}")
		same(t, "those that wait", len(good[[]Request](t)(s.Requests(ctx, false))), 1)
		same(t, "all", len(good[[]Request](t)(s.Requests(ctx, true))), 3)
		now = late.Expires
		is(t, "approved too late", s.Decide(ctx, late.ID, operator, RequestApproved, "", false), ErrConflict)
		same(t, "those that wait after that", len(good[[]Request](t)(s.Requests(ctx, false))), 0)

		for range mostRequestsOf {
			ask("user:erika", "{}")
		}
		_, err = s.Ask(ctx, Request{Who: "user:erika"})
		is(t, "more of one", err, ErrTooMany)
		for i := mostRequestsOf; i < mostRequests; i++ {
			ask(fmt.Sprint("user:", i), "{}")
		}
		_, err = s.Ask(ctx, Request{Who: "user:max"})
		is(t, "more of all", err, ErrTooMany)
		now = now.Add(forgotten + 2*requestFor)
		is(t, "removed", s.PruneRequests(ctx), nil)
		_, err = s.Request(ctx, one.ID)
		is(t, "long after", err, ErrNotFound)
	})
}
