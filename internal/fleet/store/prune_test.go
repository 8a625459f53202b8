package store

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sent puts blobs into a store.
func sent(t testing.TB, s *Store, bodies ...string) (hashes []string) {
	t.Helper()
	for _, body := range bodies {
		hashes = append(hashes, hashOf(body))
		if err := s.PutBlob(t.Context(), hashOf(body), 1<<30, strings.NewReader(body)); err != nil {
			t.Fatal(err)
		}
	}
	return hashes
}

// pruned prunes until nothing is left to remove, and says what there is then.
func pruned(t testing.TB, s *Store, below int64, keep ...int64) (bundles []int64, steps int) {
	t.Helper()
	for {
		removed := good[Pruned](t)(s.Prune(t.Context(), operator, below, keep))
		if len(removed.Bundles) == 0 && removed.Blobs == 0 && removed.Chunks == 0 {
			break
		}
		if removed.Blobs > prunedBlobs || removed.Chunks > prunedChunks || len(removed.Bundles) > prunedBundles {
			t.Errorf("a large step: %+v", removed)
		}
		steps++
	}
	for _, b := range good[[]Bundle](t)(s.Bundles(t.Context())) {
		bundles = append(bundles, b.Number)
	}
	return bundles, steps
}

// readable says of each blob of a bundle that it is there whole.
func readable(t testing.TB, s *Store) (blobs int) {
	t.Helper()
	var hashes []string
	err := s.query(t.Context(), s.reader, func(scan func(...any) error) error {
		var hash string
		err := scan(&hash)
		hashes = append(hashes, hash)
		return err
	}, `select distinct sha256 from bundle_blob`)
	if err != nil {
		t.Fatal(err)
	}
	for _, hash := range hashes {
		body := good[[]byte](t)(io.ReadAll(good[*Blob](t)(s.OpenBlob(t.Context(), hash))))
		same(t, "a blob in use", hashOf(string(body)), hash)
	}
	return len(hashes)
}

func TestPrune(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2")
		now := time.Now()
		s.Now = func() time.Time { return now }
		large := strings.Repeat("x", (prunedChunks+9)*chunkSize)
		for n := range int64(8) {
			b := Bundle{Number: n + 1, SHA256: hashOf(fmt.Sprint(n + 1)), Manifest: []byte("{}"), Level: 1, Blobs: sent(t, s, "all", fmt.Sprint("part ", n+1))}
			if n == 3 {
				b.Blobs = append(b.Blobs, sent(t, s, large)...)
			}
			is(t, "publish", s.Publish(ctx, operator, Publication{Bundle: &b}), nil)
		}
		move := func(r Rollout, desired ...Desired) Rollout {
			t.Helper()
			r.Plan, r.State = []byte("{}"), []byte("{}")
			return good[[]Rollout](t)(s.Move(ctx, operator, "rollout.test", Move{[]Rollout{r}, desired}))[0]
		}
		move(Rollout{Bundle: 4, Phase: "done", Closed: true})
		move(Rollout{Bundle: 1, Phase: "pushed"})
		reverted := move(Rollout{Bundle: 2, Phase: "reverted", Closed: true}, Desired{Host: "web-1", Bundle: 3}) // told by it to go back
		is(t, "desired", s.SetDesired(ctx, operator, "desired.test", []Desired{{Host: "web-2", Bundle: 8}}), nil)
		move(Rollout{Bundle: 8, Phase: "superseded", Closed: true})

		now = now.Add(25 * time.Hour)
		sent(t, s, "of a publication that is under way")
		good[[]string](t)(s.MissingBlobs(ctx, []string{hashOf("part 4")})) // and it has asked for this one
		bundles, steps := pruned(t, s, 8, 5, 7)
		same(t, "bundles", bundles, []int64{8, 7, 5, 3, 2, 1}) // 4 and 6 are gone
		if steps < 2 {
			t.Errorf("all in %d step", steps)
		}
		same(t, "blobs in use", readable(t, s), 7)
		same(t, "missing", good[[]string](t)(s.missing(ctx, s.reader, []string{hashOf("all"), hashOf("part 4"), hashOf("part 6"), hashOf(large), hashOf("of a publication that is under way")})), []string{hashOf("part 6"), hashOf(large)})
		var chunks, uploads int
		is(t, "count", s.one(ctx, s.reader, []any{&chunks, &uploads}, `select (select count(*) from chunk), (select count(*) from upload)`), nil)
		same(t, "chunks and uploads", []int{chunks, uploads}, []int{9, 9})
		same(t, "a roll-out that a host was told by", good[Rollout](t)(s.Rollout(ctx, reverted.ID)).Phase, "reverted")
		_, err := s.Rollout(ctx, 1)
		is(t, "that of a bundle that is gone", err, ErrNotFound)
		var told []string
		for _, e := range good[[]Entry](t)(s.Audit(ctx, 0, 1000)) {
			if e.What == "bundle.remove" {
				told = append(told, string(e.Diff))
			}
		}
		same(t, "audit", told, []string{`{"bundles":[4,6]}`})

		// The newest roll-out stays, or its number would come again.
		is(t, "desired", s.SetDesired(ctx, operator, "desired.test", []Desired{{Host: "web-1", Bundle: 7}, {Host: "web-2", Bundle: 7}}), nil)
		now = now.Add(25 * time.Hour)
		bundles, _ = pruned(t, s, 100, 7)
		same(t, "bundles", bundles, []int64{8, 7, 1})
		same(t, "blobs in use", readable(t, s), 4)
		same(t, "missing", good[[]string](t)(s.missing(ctx, s.reader, []string{hashOf("part 4"), hashOf("of a publication that is under way")})), []string{hashOf("part 4"), hashOf("of a publication that is under way")})
		same(t, "the next roll-out", move(Rollout{Bundle: 7, Phase: "pushed"}).ID, 5)
	})
}

// TestPruneMeanwhile: whoever prunes while others publish removes nothing that a bundle has,
// however old it seems.
func TestPruneMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		fleet(t, s)
		var asked atomic.Int64 // each time somebody looks at the clock two days have gone
		s.Now = func() time.Time { return time.Now().Add(time.Duration(asked.Add(1)) * 48 * time.Hour) }
		ctx, stop := context.WithCancel(t.Context())
		var patient atomic.Bool // who publishes has come too late twice
		var pruning sync.WaitGroup
		pruning.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
				if patient.Load() {
					continue
				}
				if _, err := s.Prune(t.Context(), operator, 10, nil); err != nil && s.dialect.lock == "" {
					t.Error(err) // PostgreSQL refuses to remove what somebody has begun to use
				}
			}
		})
		for n := range int64(20) {
			b := Bundle{Number: n + 1, SHA256: hashOf(fmt.Sprint(n)), Manifest: []byte("{}"), Level: 1}
			bodies := []string{"all", fmt.Sprint("of two ", n/2), fmt.Sprint("part ", n)}
			for _, body := range bodies {
				b.Blobs = append(b.Blobs, hashOf(body))
			}
			for tries := 0; ; tries++ {
				patient.Store(tries > 2)
				for _, body := range bodies {
					_ = s.PutBlob(t.Context(), hashOf(body), 1<<20, strings.NewReader(body)) // it may be pruned while it comes
				}
				err := s.Publish(t.Context(), operator, Publication{Bundle: &b})
				if err == nil {
					break
				}
				if tries > 10 {
					t.Fatal(err)
				}
			}
		}
		stop()
		pruning.Wait()
		same(t, "bundles", len(good[[]Bundle](t)(s.Bundles(t.Context()))) >= 11, true)
		if blobs := readable(t, s); blobs < 11 {
			t.Errorf("%d blobs", blobs)
		}
	})
}
