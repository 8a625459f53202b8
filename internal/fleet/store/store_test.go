package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"sluice/internal/base/testseed"
)

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
		is(t, "signed again", publish(&b, Metadata{"targets", 2, []byte("t2")}), nil)
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
