package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"sluice/internal/base/testseed"
)

const operator = "operator:erika"

// fleet makes a fleet in a database.
func fleet(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Create(t.Context(), operator, "example.net", 1); err != nil {
		t.Fatal(err)
	}
}

func secretOf(text string) [32]byte { return sha256.Sum256([]byte(text)) }

func hashOf(text string) string {
	sum := secretOf(text)
	return hex.EncodeToString(sum[:])
}

// enrolled makes hosts, each with a key that is the hash of its name.
func enrolled(t testing.TB, s *Store, hosts ...string) {
	t.Helper()
	err := s.CreateToken(t.Context(), operator, Token{
		ID: "all", Secret: secretOf("all"), Labels: map[string]string{"role": "web"}, Uses: 1 << 30, Expires: s.Now().Add(time.Hour),
	})
	if err != nil && !errors.Is(err, ErrExists) {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if _, err := s.Enrol(t.Context(), Enrolment{Secret: secretOf("all"), Host: h, Key: hashOf(h), Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.5")}}); err != nil {
			t.Fatal(err)
		}
	}
}

// published makes bundles of those numbers.
func published(t testing.TB, s *Store, numbers ...int64) {
	t.Helper()
	for _, n := range numbers {
		b := Bundle{Number: n, SHA256: hashOf(fmt.Sprint(n)), Manifest: []byte("{}"), Level: 1}
		if err := s.Publish(t.Context(), operator, Publication{Bundle: &b}); err != nil {
			t.Fatal(err)
		}
	}
}

func same[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func good[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// revises says by how much f raises the revision.
func revises(t testing.TB, s *Store, what string, by int64, f func() error) {
	t.Helper()
	before := good[Fleet](t)(s.Fleet(t.Context()))
	if err := f(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	after := good[Fleet](t)(s.Fleet(t.Context()))
	if after.Revision != before.Revision+by {
		t.Errorf("%s: revision %d after %d", what, after.Revision, before.Revision)
	}
}

func TestFleet(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		_, err := s.Fleet(ctx)
		is(t, "no fleet yet", err, ErrNotFound)
		_, err = s.Snapshot(ctx)
		is(t, "no fleet to snapshot", err, ErrNotFound)
		is(t, "a token of no fleet", s.CreateToken(ctx, operator, Token{ID: "a", Uses: 1}), ErrNotFound)
		fleet(t, s)
		is(t, "a second fleet", s.Create(ctx, operator, "example.org", 1), ErrExists)
		f := good[Fleet](t)(s.Fleet(ctx))
		same(t, "fleet", f.Name, "example.net")
		same(t, "position", f.Position, Position{1, 1})
		is(t, "the same incarnation", s.NewIncarnation(ctx, operator, 1), ErrConflict)
		revises(t, s, "a new incarnation", 1, func() error { return s.NewIncarnation(ctx, operator, 3) })
		same(t, "position", good[Fleet](t)(s.Fleet(ctx)).Position, Position{3, 2})
		if (Position{1, 9}).Compare(Position{2, 1}) != -1 || (Position{2, 1}).Compare(Position{2, 1}) != 0 || (Position{2, 2}).Compare(Position{2, 1}) != 1 {
			t.Error("positions compare wrongly")
		}
	})
}

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

func TestBlobs(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		random := rand.New(rand.NewPCG(testseed.Of(t), 0))
		for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize + 5} {
			body := make([]byte, size)
			for i := range body {
				body[i] = byte(random.Uint32())
			}
			hash := hashOf(string(body))
			same(t, "missing", good[[]string](t)(s.MissingBlobs(ctx, []string{hash, hash})), []string{hash})
			if err := s.PutBlob(ctx, hash, int64(size), iotest.HalfReader(bytes.NewReader(body))); err != nil {
				t.Fatal(err)
			}
			is(t, "again, unread", s.PutBlob(ctx, hash, 0, iotest.ErrReader(io.ErrClosedPipe)), nil)
			same(t, "missing", good[[]string](t)(s.MissingBlobs(ctx, []string{hash})), nil)
			b := good[*Blob](t)(s.OpenBlob(ctx, hash))
			same(t, "size", b.Size, int64(size))
			if err := iotest.TestReader(b, body); err != nil {
				t.Error(err)
			}
		}
		_, err := s.OpenBlob(ctx, hashOf("nowhere"))
		is(t, "no blob", err, ErrNotFound)
		is(t, "another hash", s.PutBlob(ctx, hashOf("a"), 100, strings.NewReader("b")), ErrHash)
		is(t, "too large", s.PutBlob(ctx, hashOf("a"), chunkSize, bytes.NewReader(make([]byte, 2*chunkSize))), ErrTooLarge)
		is(t, "broken off", s.PutBlob(ctx, hashOf("a"), 1<<20, io.MultiReader(bytes.NewReader(make([]byte, chunkSize)), iotest.ErrReader(io.ErrClosedPipe))), io.ErrClosedPipe)
		var uploads, blobs int
		is(t, "uploads", s.one(ctx, s.reader, []any{&uploads, &blobs}, `select (select count(*) from upload), (select count(*) from blob)`), nil)
		same(t, "uploads left of those that failed", uploads, blobs)
	})
}

// TestBlobAtOnce has one blob sent by several at the same time, after one that was
// abandoned.
func TestBlobAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		body := strings.Repeat("x", 2*chunkSize)
		if _, err := s.writer.ExecContext(t.Context(), "insert into upload (id, begun) values ('abandoned', 1)"); err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for range 6 {
			wait.Go(func() { is(t, "sent", s.PutBlob(t.Context(), hashOf(body), 1<<20, strings.NewReader(body)), nil) })
		}
		wait.Wait()
		read := good[[]byte](t)(io.ReadAll(good[*Blob](t)(s.OpenBlob(t.Context(), hashOf(body)))))
		same(t, "content", hashOf(string(read)), hashOf(body))
		good[Pruned](t)(s.Prune(t.Context(), operator, 0, nil))
		var uploads int
		is(t, "uploads", s.one(t.Context(), s.reader, []any{&uploads}, `select count(*) from upload`), nil)
		same(t, "uploads", uploads, 1)
	})
}

func TestPublish(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		publish := func(b *Bundle, metadata ...Metadata) error {
			return s.Publish(ctx, operator, Publication{b, metadata})
		}
		b := Bundle{Number: 1, SHA256: hashOf("m"), Manifest: []byte("m"), Level: 2, Blobs: []string{hashOf("part")}}
		err := publish(&b, Metadata{"targets", 1, []byte("t1")})
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), hashOf("part")) {
			t.Error(err)
		}
		same(t, "metadata of what was refused", len(good[[]Metadata](t)(s.Metadata(ctx))), 0)
		is(t, "a part", s.PutBlob(ctx, hashOf("part"), 10, strings.NewReader("part")), nil)
		root := func(n int64) Metadata { return Metadata{"root", n, fmt.Append(nil, "r", n)} }
		revises(t, s, "a bundle", 1, func() error {
			return publish(&b, root(1), root(2), Metadata{"targets", 1, []byte("t1")}, Metadata{"timestamp", 1700000000, []byte("ts1")})
		})
		revises(t, s, "a timestamp", 1, func() error { return publish(nil, Metadata{"timestamp", 1700000001, []byte("ts2")}) })
		is(t, "an older timestamp", publish(nil, Metadata{"timestamp", 1700000001, nil}), ErrConflict)
		is(t, "a root left out", publish(nil, root(4)), ErrConflict)
		is(t, "the number of another", publish(&Bundle{Number: 1, SHA256: hashOf("n"), Manifest: []byte("n")}), ErrConflict)
		is(t, "signed anew", publish(&b, Metadata{"targets", 2, []byte("t2")}), nil)
		is(t, "many roots", publish(nil, root(3), root(4), root(5), root(6), root(7), root(8), root(9), root(10)), nil)
		all := good[[]Metadata](t)(s.Metadata(ctx))
		want := []Metadata{}
		for n := range int64(10) {
			want = append(want, root(n+1))
		}
		same(t, "metadata", all, append(want, Metadata{"targets", 2, []byte("t2")}, Metadata{"timestamp", 1700000001, []byte("ts2")}))
		got := good[Bundle](t)(s.Bundle(ctx, 1))
		same(t, "bundle", got, Bundle{Number: 1, SHA256: b.SHA256, Manifest: b.Manifest, Level: 2, Published: got.Published, By: operator})
		_, err = s.Bundle(ctx, 2)
		is(t, "no bundle", err, ErrNotFound)
		published(t, s, 2, 3)
		bundles := good[[]Bundle](t)(s.Bundles(ctx))
		same(t, "bundles", []int64{bundles[0].Number, bundles[1].Number, bundles[2].Number}, []int64{3, 2, 1})
	})
}

func TestDesired(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2", "web-3")
		published(t, s, 1, 2)
		before := good[Fleet](t)(s.Fleet(ctx)).Revision
		set := func(d ...Desired) func() error { return func() error { return s.SetDesired(ctx, operator, "test", d) } }
		revises(t, s, "two", 1, set(Desired{Host: "web-2", Bundle: 1}, Desired{Host: "web-1", Bundle: 1}, Desired{Host: "gone", Bundle: 1}))
		revises(t, s, "the same", 0, set(Desired{Host: "web-2", Bundle: 1}))
		revises(t, s, "one of them", 1, set(Desired{Host: "web-2", Bundle: 1}, Desired{Host: "web-1", Bundle: 2, Rollout: 7}))
		is(t, "no bundle", set(Desired{Host: "web-1", Bundle: 9})(), ErrNotFound)
		same(t, "desired", good[[]Desired](t)(s.Desired(ctx)), []Desired{{"web-1", 2, 7, before + 2}, {"web-2", 1, 0, before + 1}})
		same(t, "of one", good[[]Desired](t)(s.Desired(ctx, "web-2")), []Desired{{"web-2", 1, 0, before + 1}})
	})
}

func TestStatus(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2")
		at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		said := func(host, state, mark string, after time.Duration) Status {
			return Status{Host: host, Bundle: 3, Rollout: 2, Revision: 5, Generation: "12", Mark: mark, Proof: "p", State: state, Reason: "", At: at.Add(after)}
		}
		put := func(r ...Status) func() error { return func() error { return s.PutStatus(ctx, r) } }
		revises(t, s, "status", 0, put(said("web-1", "pending", "a", 0), said("gone", "proved", "a", 0), said("web-1", "proved", "b", time.Second)))
		want := said("web-1", "proved", "b", time.Second)
		want.Since = want.At
		same(t, "status", good[[]Status](t)(s.Statuses(ctx)), []Status{want})
		revises(t, s, "the same state", 0, put(said("web-1", "proved", "c", time.Minute)))
		revises(t, s, "an older one", 0, put(said("web-1", "refused", "z", time.Second)))
		want.Mark, want.At = "c", at.Add(time.Minute)
		same(t, "status", good[[]Status](t)(s.Statuses(ctx, "web-1", "web-2")), []Status{want})
		revises(t, s, "another state", 0, put(Status{Host: "web-1", State: "refused", Reason: "bad\x00\xff", At: at.Add(time.Hour)}))
		got := good[[]Status](t)(s.Statuses(ctx, "web-1"))[0]
		same(t, "since", got.Since, at.Add(time.Hour))
		same(t, "reason", got.Reason, "bad\ufffd\ufffd")
		many := make([]Status, 2*batch+1)
		for i := range many {
			many[i] = said(fmt.Sprintf("web-%d", i), "proved", "m", time.Duration(i)*time.Hour)
		}
		revises(t, s, "many", 0, put(many...))
		same(t, "a host's in the last of them", good[[]Status](t)(s.Statuses(ctx, "web-2"))[0].Mark, "m")
	})
}

// TestOrder has many writers at the same time: every revision comes once, in the order in
// which changes are seen, and no reader ever sees a later one before an earlier one.
func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		const writers = 4
		each := testseed.Rounds(20, 200)
		for i := range writers {
			enrolled(t, s, fmt.Sprintf("web-%d", i))
		}
		start := good[Fleet](t)(s.Fleet(ctx)).Revision
		end := start + int64(writers*each)
		var wait sync.WaitGroup
		for i := range writers {
			wait.Go(func() {
				for n := range each {
					host := fmt.Sprintf("web-%d", i)
					is(t, "labels", s.SetLabels(ctx, operator, host, map[string]string{"n": fmt.Sprint(n)}, nil), nil)
				}
			})
		}
		last := map[string]int{}
		for at := start; at < end; {
			good[Position](t)(s.Wait(ctx, at))
			feed := good[Feed](t)(s.Changes(ctx, at))
			if feed.Whole {
				t.Fatalf("the feed does not reach back to %d", at)
			}
			for _, c := range feed.Changes {
				if at++; c.Revision != at {
					t.Fatalf("revision %d where %d is next", c.Revision, at)
				}
				last[c.IDs[0]]++
			}
			same(t, "position", feed.Revision, at)
		}
		wait.Wait()
		for i := range writers {
			same(t, "changes of one host", last[fmt.Sprintf("web-%d", i)], each)
		}
		same(t, "the audit's length", good[Fleet](t)(s.Fleet(ctx)).Head.Seq, end+1) // the token made no revision
	})
}

func TestFeed(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1")
		published(t, s, 1)
		is(t, "desired", s.SetDesired(ctx, operator, "test", []Desired{{Host: "web-1", Bundle: 1}}), nil)
		same(t, "feed", good[Feed](t)(s.Changes(ctx, 1)), Feed{Position{1, 4}, []Change{{2, "host", []string{"web-1"}}, {3, "trust", nil}, {4, "desired", []string{"web-1"}}}, false})
		same(t, "nothing new", good[Feed](t)(s.Changes(ctx, 4)), Feed{Position: Position{1, 4}})
		same(t, "of another database", good[Feed](t)(s.Changes(ctx, 9)), Feed{Position: Position{1, 4}, Whole: true})
		snapshot := good[Snapshot](t)(s.Snapshot(ctx))
		same(t, "snapshot", []any{snapshot.Fleet.Position, len(snapshot.Hosts), len(snapshot.Bundles), snapshot.Desired[0].Revision}, []any{Position{1, 4}, 1, 1, int64(4)})
		if _, err := s.writer.ExecContext(ctx, "update fleet set revision = 10099"); err != nil {
			t.Fatal(err)
		}
		is(t, "a change", s.SetLabels(ctx, operator, "web-1", nil, nil), nil)
		same(t, "what was thrown away", good[Feed](t)(s.Changes(ctx, 2)).Whole, true)
		var left int
		is(t, "left", s.one(ctx, s.reader, []any{&left}, `select count(*) from change`), nil)
		same(t, "left", left, 1)
	})
}

// TestWait has one process wait for the change of another.
func TestWait(t *testing.T) {
	for name, database := range map[string]func(testing.TB) string{"sqlite": sqliteDatabase, "postgres": postgresDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := database(t)
			a, b := open(t, address), open(t, address)
			fleet(t, a)
			done := make(chan Position)
			go func() { done <- good[Position](t)(b.Wait(t.Context(), 1)) }()
			is(t, "change", a.NewIncarnation(t.Context(), operator, 2), nil)
			same(t, "position", <-done, Position{2, 2})
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := b.Wait(gone, 2)
			is(t, "cancelled", err, context.Canceled)
		})
	}
}

// Hosts may run what an older database has never heard of.
func TestRestoredDesiresNothing(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1")
		published(t, s, 1)
		is(t, "desired", s.SetDesired(ctx, operator, "desired.set", []Desired{{Host: "web-1", Bundle: 1}}), nil)
		is(t, "a new incarnation", s.NewIncarnation(ctx, operator, 2), nil)
		if left := good[[]Desired](t)(s.Desired(ctx)); len(left) > 0 {
			t.Errorf("still desired: %v", left)
		}
	})
}

func TestAuditTells(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1")
		published(t, s, 1)
		is(t, "desired", s.SetDesired(ctx, operator, "desired.set", []Desired{{Host: "web-1", Bundle: 1}}), nil)
		is(t, "refused", s.Revoke(ctx, operator, "nowhere", ""), ErrNotFound)
		is(t, "revoke", s.Revoke(ctx, operator, "web-1", "stolen\x00"), nil)
		entries := good[[]Entry](t)(s.Audit(ctx, 0, 100))
		var told []string
		for _, e := range entries {
			told = append(told, fmt.Sprintf("%d %s %s %s", e.Seq, e.Who, e.What, e.Diff))
		}
		wantEnds := []string{
			`1 operator:erika fleet.create {"incarnation":1,"name":"example.net"}`,
			`2 operator:erika token.create`, `3 host:web-1 host.enrol`, `4 operator:erika publish {"bundle":1,`,
			`5 operator:erika desired.set {"desired":[{"host":"web-1","bundle":1}]}`, `6 operator:erika host.revoke {"host":"web-1","why":"stolen`,
		}
		if len(told) != len(wantEnds) || !slices.EqualFunc(told, wantEnds, strings.HasPrefix) {
			t.Errorf("%q", told)
		}
		if slices.ContainsFunc(told, func(line string) bool { return strings.Contains(line, hashOf("all")) }) {
			t.Error("the audit tells a token's secret")
		}
		same(t, "head", good[Fleet](t)(s.Fleet(ctx)).Head, Head{6, entries[5].Hash})
		same(t, "two of them", len(good[[]Entry](t)(s.Audit(ctx, 2, 2))), 2)
	})
}

// TestOddTexts asks for names that no database holds: that is an answer, not a failure.
func TestOddTexts(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1")
		for _, odd := range []string{"", "\x00", "\xff", "a\x00b", "'; drop table host; --", strings.Repeat("x", 1<<16)} {
			_, err := s.Authenticate(ctx, odd, odd)
			is(t, fmt.Sprintf("%.20q", odd), err, ErrNotFound)
			_, err = s.OpenBlob(ctx, odd)
			is(t, fmt.Sprintf("%.20q", odd), err, ErrNotFound)
			is(t, "seen", s.Seen(ctx, []Sighting{{Host: "web-1", Version: odd}, {Host: odd}}), nil)
			is(t, "status", s.PutStatus(ctx, []Status{{Host: "web-1", State: odd}, {Host: odd}}), nil)
			is(t, "facts", func() error { _, err := s.PutFacts(ctx, "web-1", []byte(odd)); return err }(), nil)
			is(t, "labels", s.SetLabels(ctx, odd, "web-1", map[string]string{"a": "\x00"}, nil), nil)
		}
		same(t, "hosts", len(good[[]Host](t)(s.Hosts(ctx))), 1)
	})
}
