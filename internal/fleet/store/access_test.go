package store

import (
	"testing"
	"time"
)

func TestAccess(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		s.Now = func() time.Time { return now }
		a := Access{ID: "a", Kind: AccessToken, Secret: secretOf("s"), Who: "token:ci", Role: "viewer", Hosts: "env=prod", Groups: []string{"g"}, Makers: []string{"user:erika"}, Expires: now.Add(time.Hour)}
		if err := s.CreateAccess(ctx, operator, a); err != nil {
			t.Fatal(err)
		}
		is(t, "a second of the id", s.CreateAccess(ctx, operator, a), ErrExists)
		again := a
		again.ID = "b"
		is(t, "a second of the secret", s.CreateAccess(ctx, operator, again), ErrExists)
		a.Secret, a.Created, a.By = [32]byte{}, now, operator
		same(t, "by its secret", good[Access](t)(s.AccessBy(ctx, secretOf("s"))), a)
		_, err := s.AccessBy(ctx, secretOf("x"))
		is(t, "by another", err, ErrNotFound)
		// It is kept once an hour that it is used.
		used := now
		for _, later := range []time.Duration{0, usedEvery - time.Second, usedEvery} {
			now = used.Add(later)
			for _, known := range []Access{a, good[Access](t)(s.AccessBy(ctx, secretOf("s")))} { // another controller knows less
				if err := s.UsedAccess(ctx, known); err != nil {
					t.Fatal(err)
				}
			}
			if a.Used = used; later == usedEvery {
				a.Used = now
			}
			same(t, "used", good[Access](t)(s.AccessBy(ctx, secretOf("s"))), a)
		}
		now = used
		again.Secret = secretOf("t")
		if err := s.CreateAccess(ctx, operator, again); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
		if err := s.WithdrawAccess(ctx, operator, "a"); err != nil {
			t.Fatal(err)
		}
		is(t, "withdrawn twice", s.WithdrawAccess(ctx, operator, "a"), ErrNotFound)
		a.Withdrawn = now
		same(t, "withdrawn", good[Access](t)(s.AccessBy(ctx, secretOf("s"))), a)
		same(t, "all", len(good[[]Access](t)(s.Accesses(ctx))), 2)
		for _, later := range []struct {
			after time.Duration
			left  int
		}{{0, 2}, {forgotten, 1}, {time.Hour, 0}} { // one was withdrawn at once, one ended after an hour
			now = now.Add(later.after)
			if err := s.PruneAccess(ctx); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Microsecond)
			same(t, "told of", len(good[[]Access](t)(s.Accesses(ctx))), later.left)
		}
		var told []string
		for _, e := range good[[]Entry](t)(s.Audit(ctx, 0, 100)) {
			told = append(told, e.What)
		}
		same(t, "the audit", told, []string{"fleet.create", "access.create", "access.create", "access.withdraw"})
	})
}

// TestTrial: what is tried is not kept, and says whether it would be.
func TestTrial(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		fleet(t, s)
		took := false
		ctx := Trial(t.Context(), &took)
		a := Access{ID: "a", Kind: AccessToken, Secret: secretOf("s"), Who: "token:ci", Role: "viewer", Expires: s.Now().Add(time.Hour)}
		is(t, "tried", s.CreateAccess(ctx, operator, a), ErrTried)
		same(t, "kept", len(good[[]Access](t)(s.Accesses(t.Context()))), 0)
		same(t, "told", len(good[[]Entry](t)(s.Audit(t.Context(), 0, 100))), 1)
		is(t, "done", s.CreateAccess(t.Context(), operator, a), nil)
		same(t, "it would be", took, true)
		took = false
		is(t, "tried again", s.CreateAccess(ctx, operator, a), ErrExists)
		same(t, "it would not be", took, false)
	})
}
