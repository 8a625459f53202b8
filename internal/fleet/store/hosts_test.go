package store

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTokens(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		s.Now = func() time.Time { return now }
		token := Token{ID: "web", Secret: secretOf("s"), Labels: map[string]string{"role": "web", "env": "prod"}, Uses: 2, Expires: now.Add(time.Hour)}
		if err := s.CreateToken(ctx, operator, token); err != nil {
			t.Fatal(err)
		}
		is(t, "a second token of the name", s.CreateToken(ctx, operator, token), ErrExists)
		again := token
		again.ID = "of-the-same-secret"
		is(t, "a second token of the secret", s.CreateToken(ctx, operator, again), ErrExists)
		enrol := func(host, key string) (Host, error) {
			return s.Enrol(ctx, Enrolment{Secret: secretOf("s"), Host: host, Key: hashOf(key), Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::5")}})
		}
		h := good[Host](t)(enrol("web-1", "k1"))
		same(t, "labels", h.Labels, token.Labels)
		same(t, "when", h.Enrolled, now)
		same(t, "asked again", good[Host](t)(enrol("web-1", "k1")), h)
		_, err := enrol("web-1", "k2")
		is(t, "the name with another key", err, ErrTaken)
		_, err = enrol("web-9", "k1")
		is(t, "the key with another name", err, ErrTaken)
		good[Host](t)(enrol("web-2", "k2"))
		_, err = enrol("web-3", "k3")
		is(t, "used up", err, ErrToken)
		if !strings.Contains(err.Error(), "used 2 times") {
			t.Error(err)
		}
		same(t, "the last use asked again", good[Host](t)(enrol("web-2", "k2")).ID, "web-2")
		_, err = s.Enrol(ctx, Enrolment{Secret: secretOf("other"), Host: "web-3", Key: hashOf("k3")})
		is(t, "an unknown one", err, ErrToken)
		token.ID, token.Secret = "late", secretOf("late")
		token.Expires = now
		if err := s.CreateToken(ctx, operator, token); err != nil {
			t.Fatal(err)
		}
		_, err = s.Enrol(ctx, Enrolment{Secret: secretOf("late"), Host: "web-3", Key: hashOf("k3")})
		if !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "expired at 2030-01-02 03:04:05 UTC") {
			t.Error(err)
		}
		if err := s.WithdrawToken(ctx, operator, "late"); err != nil {
			t.Fatal(err)
		}
		is(t, "withdrawn twice", s.WithdrawToken(ctx, operator, "late"), ErrNotFound)
		_, err = s.Enrol(ctx, Enrolment{Secret: secretOf("late"), Host: "web-3", Key: hashOf("k3")})
		if !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "withdrawn") {
			t.Error(err)
		}
		all := good[[]Token](t)(s.Tokens(ctx))
		same(t, "tokens", len(all), 2)
		same(t, "token", all[1], Token{ID: "web", Labels: all[1].Labels, Uses: 2, Used: 2, Created: now, By: operator, Expires: now.Add(time.Hour)})
	})
}

// TestTokenOnce has many hosts use a token at the same time.
func TestTokenOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		fleet(t, s)
		const uses, hosts = 3, 16
		if err := s.CreateToken(t.Context(), operator, Token{ID: "web", Secret: secretOf("s"), Uses: uses, Expires: s.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		var won atomic.Int64
		var wait sync.WaitGroup
		for i := range hosts {
			wait.Go(func() {
				name := fmt.Sprintf("web-%d", i)
				switch _, err := s.Enrol(t.Context(), Enrolment{Secret: secretOf("s"), Host: name, Key: hashOf(name)}); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, ErrToken):
					t.Error(err)
				}
			})
		}
		wait.Wait()
		same(t, "enrolled", won.Load(), uses)
		same(t, "hosts", len(good[[]Host](t)(s.Hosts(t.Context()))), uses)
		same(t, "uses", good[[]Token](t)(s.Tokens(t.Context()))[0].Used, uses)
	})
}

// TestOneNameOnce has several with keys of their own claim one name at the same time.
func TestOneNameOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		fleet(t, s)
		enrolled(t, s)
		var wait sync.WaitGroup
		var won atomic.Value
		for i := range 8 {
			wait.Go(func() {
				key := hashOf(fmt.Sprint(i))
				switch _, err := s.Enrol(t.Context(), Enrolment{Secret: secretOf("all"), Host: "web-1", Key: key}); {
				case err == nil && !won.CompareAndSwap(nil, key):
					t.Error("two keys for one name")
				case err != nil && !errors.Is(err, ErrTaken):
					t.Error(err)
				}
			})
		}
		wait.Wait()
		for i := range 8 {
			_, err := s.Authenticate(t.Context(), "web-1", hashOf(fmt.Sprint(i)))
			if hashOf(fmt.Sprint(i)) == won.Load() {
				is(t, "the one that won", err, nil)
			} else {
				is(t, "one that lost", err, ErrTaken)
			}
		}
		same(t, "uses", good[[]Token](t)(s.Tokens(t.Context()))[0].Used, 1)
	})
}

func TestHosts(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-2", "web-1", "db-1")
		same(t, "all", len(good[[]Host](t)(s.Hosts(ctx))), 3)
		some := good[[]Host](t)(s.Hosts(ctx, "web-1", "nowhere", "db-1"))
		same(t, "some", []string{some[0].ID, some[1].ID}, []string{"db-1", "web-1"})

		is(t, "no host", s.SetLabels(ctx, operator, "nowhere", nil, nil), ErrNotFound)
		is(t, "a million labels", s.SetLabels(ctx, operator, "web-1", map[string]string{"a": strings.Repeat("x", 1<<20)}, nil), ErrTooLarge)
		revises(t, s, "labels", 1, func() error {
			return s.SetLabels(ctx, operator, "web-1", map[string]string{"role": "db"}, []byte("signed"))
		})
		addresses := []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8::9")}
		revises(t, s, "addresses", 1, func() error { return s.SetAddresses(ctx, "host:web-1", "web-1", addresses) })
		revises(t, s, "the same addresses", 0, func() error { return s.SetAddresses(ctx, "host:web-1", "web-1", addresses) })
		at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		revises(t, s, "sightings", 0, func() error {
			return s.Seen(ctx, []Sighting{{"web-1", at, "1.2", 3, 1}, {"nowhere", at, "", 0, 0}, {"web-1", at.Add(-time.Hour), "1.1", 2, 1}})
		})
		revises(t, s, "an older sighting", 0, func() error { return s.Seen(ctx, []Sighting{{"web-1", at.Add(-time.Minute), "1.0", 1, 1}}) })
		h := good[[]Host](t)(s.Hosts(ctx, "web-1"))[0]
		same(t, "host", h, Host{
			ID: "web-1", Labels: map[string]string{"role": "db"}, LabelsOrder: []byte("signed"), Addresses: addresses,
			Version: "1.2", Level: 3, Protocol: 1, Enrolled: h.Enrolled, Seen: at, token: "all",
		})

		var hash string
		revises(t, s, "facts", 0, func() (err error) { hash, err = s.PutFacts(ctx, "web-1", []byte("facts")); return err })
		same(t, "the hash of facts", hash, hashOf("facts"))
		good[string](t)(s.PutFacts(ctx, "web-2", []byte("facts")))
		good[string](t)(s.PutFacts(ctx, "web-1", []byte("other")))
		same(t, "facts that one still has", string(good[[]byte](t)(s.Facts(ctx, hash))), "facts")
		good[string](t)(s.PutFacts(ctx, "web-2", []byte("other")))
		_, err := s.Facts(ctx, hash)
		is(t, "facts that nobody has", err, ErrNotFound)
		_, err = s.PutFacts(ctx, "web-1", make([]byte, MaxFacts+1))
		is(t, "too many facts", err, ErrTooLarge)
	})
}

func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2")
		auth := func(host, key string) error {
			_, err := s.Authenticate(ctx, host, hashOf(key))
			return err
		}
		is(t, "its key", auth("web-1", "web-1"), nil)
		is(t, "no key", auth("web-1", "new"), ErrTaken)
		is(t, "another's key", auth("web-1", "web-2"), ErrTaken)
		is(t, "no host", auth("nowhere", "web-1"), ErrNotFound)
		now := s.Now()
		issue := func(serial, host, key string) error {
			return s.Issued(ctx, "controller", Certificate{serial, host, hashOf(key), now, now.Add(30 * 24 * time.Hour)})
		}
		is(t, "a certificate", issue("1", "web-1", "web-1"), nil)
		is(t, "renewed with a new key", issue("2", "web-1", "new"), nil)
		is(t, "the new key", auth("web-1", "new"), nil)
		is(t, "the old key", auth("web-1", "web-1"), nil)
		is(t, "a certificate for another's key", issue("3", "web-1", "web-2"), ErrTaken)
		is(t, "a certificate for nobody", issue("4", "nowhere", "x"), ErrNotFound)

		revises(t, s, "revoke", 1, func() error { return s.Revoke(ctx, operator, "web-1", "stolen") })
		is(t, "revoked twice", s.Revoke(ctx, operator, "web-1", "stolen"), ErrRevoked)
		is(t, "the revoked host", auth("web-1", "new"), ErrRevoked)
		is(t, "a certificate for it", issue("5", "web-1", "x"), ErrRevoked)
		enrol := func(key string) error {
			_, err := s.Enrol(ctx, Enrolment{Secret: secretOf("all"), Host: "web-1", Key: hashOf(key)})
			return err
		}
		is(t, "enrolled again with a revoked key", enrol("new"), ErrRevoked)
		is(t, "enrolled again with a new key", enrol("newer"), nil)
		is(t, "the newest key", auth("web-1", "newer"), nil)
		is(t, "the revoked key", auth("web-1", "new"), ErrRevoked)

		revises(t, s, "remove", 1, func() error { return s.RemoveHost(ctx, operator, "web-1") })
		is(t, "the removed host", auth("web-1", "newer"), ErrNotFound)
		is(t, "enrolled with a removed key", enrol("newer"), ErrRevoked)
		is(t, "removed twice", s.RemoveHost(ctx, operator, "web-1"), ErrNotFound)
	})
}

func TestGuests(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "hv-1", "hv-2", "hv-3")
		put := func(g Guest) error {
			_, err := s.PutGuest(ctx, operator, g)
			return err
		}
		one := func() Guest { return good[[]Guest](t)(s.Guests(ctx, "vm-1"))[0] }
		g := Guest{
			ID: "vm-1", Placement: Placement{Host: "hv-1", Interface: "tap0", Netns: "customer7"}, Addresses: []netip.Addr{netip.MustParseAddr("10.30.0.5")},
			Public: []netip.Addr{netip.MustParseAddr("203.0.113.9")}, Labels: map[string]string{"app": "api"},
		}
		revises(t, s, "a guest", 1, func() error { return put(g) })
		revises(t, s, "the same guest", 0, func() error { return put(g) })
		is := func(what string, err, want error, text string) {
			t.Helper()
			if !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		want := g
		want.Revision = good[Fleet](t)(s.Fleet(ctx)).Revision
		same(t, "guest", one(), want)
		is("its host removed", s.RemoveHost(ctx, operator, "hv-1"), ErrConflict, "1 guests")
		other := Guest{ID: "vm-2", Placement: Placement{Host: "hv-1", Interface: "tap0"}, Addresses: []netip.Addr{netip.MustParseAddr("10.30.0.6")}}
		other.Netns = g.Netns
		is("its interface", put(other), ErrTaken, "interface tap0 of host hv-1 in network namespace customer7: taken by another: guest vm-1")
		other.Netns = "" // the interface of that name is another one
		other.Interface, other.Addresses = "tap1", g.Addresses
		is("its address", put(other), ErrTaken, "address 10.30.0.5: taken by another: guest vm-1")
		other.Addresses = g.Public
		is("its public address", put(other), ErrTaken, "address 203.0.113.9")
		same(t, "after what was refused", len(good[[]Guest](t)(s.Guests(ctx))), 1)

		g.Host, g.Public = "hv-2", []netip.Addr{}
		revises(t, s, "moved", 1, func() error { return put(g) })
		same(t, "where it was", one().Leaving, []Placement{want.Placement})
		is("an address that is free again", put(other), nil, "")
		moved := one().Revision
		g.Host = "hv-3"
		revises(t, s, "moved again", 1, func() error { return put(g) })
		same(t, "where it was", one().Leaving, []Placement{want.Placement, {Host: "hv-2", Interface: "tap0", Netns: "customer7"}})
		revises(t, s, "settled by an older revision", 0, func() error { return s.SettleGuest(ctx, operator, "vm-1", moved) })
		g.Host = "hv-1"
		revises(t, s, "moved back", 1, func() error { return put(g) })
		same(t, "of where it was", len(one().Leaving), 2)
		revises(t, s, "settled", 1, func() error { return s.SettleGuest(ctx, operator, "vm-1", one().Revision) })
		same(t, "settled", one().Leaving, []Placement(nil))
		is("the host of before removed", s.RemoveHost(ctx, operator, "hv-2"), nil, "")
		g.Host = "hv-2"
		is("moved to nowhere", put(g), ErrNotFound, "")
		is("revoked", s.Revoke(ctx, operator, "hv-3", "sold"), nil, "")
		g.Host = "hv-3"
		is("moved to a host that is revoked", put(g), ErrRevoked, "hv-3")
		revises(t, s, "removed", 1, func() error { return s.RemoveGuest(ctx, operator, "vm-1") })
		is("removed twice", s.RemoveGuest(ctx, operator, "vm-1"), ErrNotFound, "")
		g.Host, g.Public = "hv-1", nil
		is("and put again", put(g), nil, "")
	})
}
