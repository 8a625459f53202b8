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
		for _, id := range []string{"a", "b"} {
			is(t, "access", s.CreateAccess(ctx, operator, Access{ID: id, Kind: AccessSession, Secret: secretOf(id), Who: "user:erika", Expires: now.Add(time.Hour)}), nil)
		}
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

		// What is asked by an access that is withdrawn is refused, also when its owner has ended it.
		gone := good[Request](t)(s.Ask(ctx, Request{What: "ban", Operation: "ban", Method: "POST", Path: "/x", Who: "user:erika", Access: "b"}))
		is(t, "who asked logs out", s.WithdrawAccess(ctx, "user:erika", "b"), nil)
		same(t, "which ends nothing", good[Request](t)(s.Request(ctx, gone.ID)).State, RequestWaiting)
		_, err = s.Ask(ctx, Request{Who: "user:erika", Access: "b"})
		is(t, "by a session that is over", err, ErrRevoked)
		is(t, "somebody withdraws it", s.WithdrawAccess(ctx, operator, "b"), nil)
		same(t, "which ends it", good[Request](t)(s.Request(ctx, gone.ID)).State, RequestRefused)
		is(t, "once more", s.WithdrawAccess(ctx, operator, "b"), ErrNotFound)
		for range mostRequestsOf {
			ask("user:erika", "{}")
		}
		_, err = s.Ask(ctx, Request{Who: "user:erika", Access: "a"})
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

// TestTokenWithApproval: a host is let in by a person, once, and no other by the same token.
func TestTokenWithApproval(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		s.Now = func() time.Time { return now }
		is(t, "token", s.CreateToken(ctx, operator, Token{ID: "web", Secret: secretOf("s"), Labels: map[string]string{"role": "web"}, Uses: 2, Expires: now.Add(time.Hour), Approve: true}), nil)
		same(t, "it wants approval", good[[]Token](t)(s.Tokens(ctx))[0].Approve, true)
		enrol := func(host, key string) (Host, error) {
			return s.Enrol(ctx, Enrolment{Secret: secretOf("s"), Host: host, Key: hashOf(key)})
		}
		waiting := func() []Request { return good[[]Request](t)(s.Requests(ctx, false)) }
		for range 3 {
			_, err := enrol("web-1", "k1")
			is(t, "before anybody approves it", err, ErrPending)
		}
		same(t, "one request", len(waiting()), 1)
		one := good[Request](t)(s.Request(ctx, waiting()[0].ID))
		same(t, "of the host, its key and its labels", string(one.Body), fmt.Sprintf(`{"host":"web-1","key":"%s","token":"web","labels":{"role":"web"}}`, hashOf("k1")))
		now = now.Add(time.Second)
		_, err := enrol("web-2", "k2")
		is(t, "a second one", err, ErrPending)
		_, err = enrol("web-3", "k3")
		is(t, "more than it lets in", err, ErrToken)
		_, err = enrol("web-1", "k4")
		is(t, "the name with another key, more than it lets in", err, ErrToken)
		is(t, "approved", s.Decide(ctx, one.ID, operator, RequestApproved, "", false), nil)
		now = now.Add(2 * time.Hour) // the token is over, and was good when it was asked for
		_, err = enrol("web-1", "k4")
		is(t, "another key than the one that was approved", err, ErrToken)
		h := good[Host](t)(enrol("web-1", "k1"))
		same(t, "labels", h.Labels["role"], "web")
		same(t, "asked again, since the answer was lost", good[Host](t)(enrol("web-1", "k1")), h)
		same(t, "what came of it", good[Request](t)(s.Request(ctx, one.ID)).State, RequestDone)
		other := waiting()[0]
		is(t, "refused", s.Decide(ctx, other.ID, operator, RequestRefused, "not ours", false), nil)
		same(t, "what a host that was refused asked with", len(good[Request](t)(s.Request(ctx, other.ID)).Body) > 0, true)
		_, err = enrol("web-2", "k2")
		is(t, "after that", err, ErrToken)
		_, err = enrol("web-5", "k5")
		is(t, "by a token that is over", err, ErrToken)

		// A name that was approved for two keys is that of the first; the second waits for nobody's
		// mistake, and one that was let in may be refused until it comes.
		is(t, "token", s.CreateToken(ctx, operator, Token{ID: "two", Secret: secretOf("two"), Uses: 5, Expires: now.Add(time.Hour), Approve: true}), nil)
		come := func(host, key string) error {
			_, err := s.Enrol(ctx, Enrolment{Secret: secretOf("two"), Host: host, Key: hashOf(key)})
			return err
		}
		for _, key := range []string{"ka", "kb"} {
			is(t, "waits", come("new-3", key), ErrPending)
		}
		is(t, "waits", come("new-4", "kc"), ErrPending)
		for _, r := range waiting() {
			is(t, "approved", s.Decide(ctx, r.ID, operator, RequestApproved, "", false), nil)
			if r.Who == "host:new-4" {
				is(t, "taken back", s.Decide(ctx, r.ID, operator, RequestRefused, "", false), nil)
			}
		}
		is(t, "one that was taken back", come("new-4", "kc"), ErrToken)
		is(t, "the first", come("new-3", "ka"), nil)
		is(t, "revoked", s.Revoke(ctx, operator, "new-3", "sold"), nil)
		is(t, "the second", come("new-3", "kb"), ErrToken)

		is(t, "token", s.CreateToken(ctx, operator, Token{ID: "next", Secret: secretOf("n"), Uses: 1, Expires: now.Add(time.Hour), Approve: true}), nil)
		again := func() error {
			_, err := s.Enrol(ctx, Enrolment{Secret: secretOf("n"), Host: "web-6", Key: hashOf("k6")})
			return err
		}
		is(t, "waits", again(), ErrPending)
		is(t, "approved", s.Decide(ctx, waiting()[0].ID, operator, RequestApproved, "", false), nil)
		is(t, "withdrawn", s.WithdrawToken(ctx, operator, "next"), nil)
		is(t, "by a token that was withdrawn", again(), ErrToken)
		_, err = enrol("web-1", "k9")
		is(t, "the name of a host that there is", err, ErrTaken)
		now = now.Add(requestFor)
		is(t, "too late", again(), ErrToken)
	})
}
