package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestOffers counts each host once for a ban, within a time, and not once it is revoked; of one
// that says too much the newest counts.
func TestOffers(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2", "web-3", "web-4")
		// offer has hosts say what their limits have banned, as "HOST WHAT", two being enough.
		offer := func(want string, of ...string) {
			t.Helper()
			var all []Offer
			for _, text := range of {
				host, what, _ := strings.Cut(text, " ")
				all = append(all, Offer{What: what, Host: host})
			}
			got := good[[]Offered](t)(s.Offer(ctx, all, false, time.Hour, time.Hour, 2, 3))
			same(t, strings.Join(of, ", "), fmt.Sprint(got), want)
		}
		offer("[]", "web-1 a", "web-1 a", "stranger a")
		offer("[]", "web-1 a")
		offer("[{a [web-1 web-2]}]", "web-2 a", "web-2 b")
		offer("[]", "web-3 c")                        // a is not asked about
		offer("[{a [web-1 web-2 web-3]}]", "web-3 a") // it counts on until it is forgotten
		same(t, "of all", fmt.Sprint(good[[]Offered](t)(s.Offer(ctx, nil, true, time.Hour, time.Hour, 2, 3))), "[{a [web-1 web-2 web-3]}]")
		if err := s.Unoffer(ctx, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		offer("[]", "web-4 a")
		offer("[{a [web-1 web-4]} {b [web-1 web-2]}]", "web-1 a", "web-1 b")

		// As if the database's clock had gone on, or had been set back.
		later := func(by time.Duration, host string) {
			t.Helper()
			if _, err := s.writer.ExecContext(ctx, s.text("update offered set at = at - $1 where host = $2"), by.Microseconds(), host); err != nil {
				t.Fatal(err)
			}
		}
		later(time.Hour, "web-1")
		offer("[]", "web-2 d")
		offer("[{d [web-1 web-2]}]", "web-1 d")
		later(-time.Minute, "web-1")
		offer("[{d [web-2 web-3]}]", "web-3 d", "web-3 e")

		// The newest three of a host.
		offer("[]", "web-4 x", "web-4 y", "web-4 z")
		later(time.Second, "web-4")
		offer("[]", "web-4 v", "web-4 w")
		offer("[{v [web-1 web-4]}]", "web-1 v", "web-1 a")

		if err := s.Revoke(ctx, operator, "web-4", "stolen"); err != nil {
			t.Fatal(err)
		}
		offer("[]", "web-4 v")
		offer("[{v [web-1 web-3]}]", "web-3 v")

		// What was lifted on all hosts rests for a while; what was lifted on some does not.
		for what, hosts := range map[string]string{"203.0.113.7": "", "203.0.113.8": "role=web"} {
			ban := holdOf(what, time.Hour)
			ban.Hosts = hosts
			good[[]Living](t)(s.Hold(ctx, operator, 10, false, []Hold{ban}))
			same(t, "lifted", len(good[[]Living](t)(s.Lift(ctx, operator, "unban", "x", []string{ban.ID}))), 1)
		}
		offer("[{203.0.113.8 [web-1 web-3]}]", "web-1 203.0.113.7", "web-3 203.0.113.7", "web-1 203.0.113.8", "web-3 203.0.113.8")
		if _, err := s.writer.ExecContext(ctx, s.text("update lifted set at = at - $1"), time.Hour.Microseconds()); err != nil {
			t.Fatal(err)
		}
		offer("[]", "web-1 203.0.113.7")
		offer("[{203.0.113.7 [web-1 web-3]}]", "web-3 203.0.113.7")
	})
}

// TestOffersAtOnce: of hosts that tell several controllers at the same time, one of these sees
// that they are enough.
func TestOffersAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		fleet(t, s)
		var hosts []string
		for i := range 8 {
			hosts = append(hosts, fmt.Sprint("web-", i))
		}
		enrolled(t, s, hosts...)
		var all sync.WaitGroup
		var mutex sync.Mutex
		whole := 0
		for _, host := range hosts {
			all.Go(func() {
				got, err := s.Offer(t.Context(), []Offer{{"a", host}, {"b", host}}, false, time.Hour, time.Hour, len(hosts), 10)
				if err != nil {
					t.Error(err)
				}
				mutex.Lock()
				defer mutex.Unlock()
				whole += len(got)
			})
		}
		all.Wait()
		same(t, "found", whole, 2)
	})
}
