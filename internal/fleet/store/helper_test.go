package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"
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
