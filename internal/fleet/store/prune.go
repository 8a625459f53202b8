package store

import (
	"context"
	"strconv"
)

// What one step of [Store.Prune] removes at most.
const (
	prunedBundles = 16
	prunedBlobs   = 100
	prunedChunks  = 64 // 16 MiB
)

// Pruned is what a step of [Store.Prune] has removed.
type Pruned struct {
	Bundles []int64 `json:"bundles,omitempty"`
	Blobs   int64   `json:"blobs,omitempty"` // that no bundle had any more
	Chunks  int64   `json:"chunks,omitempty"`
}

// Prune removes a little of what nobody needs, in one transaction; nothing is left when it has
// removed nothing. It removes bundles with a number below the one given but those in keep,
// those that hosts are to run, and those of roll-outs that are open or that hosts were told
// last by; with a bundle go its other roll-outs. Then blobs go that no bundle and no live list has and nobody
// has sent or asked for in a day, unless a bundle waits for approval, and what uploads that did not end have left.
// The entry of the audit is of the bundles. It is no change of desired state.
func (s *Store) Prune(ctx context.Context, who string, below int64, keep []int64) (out Pruned, err error) {
	return out, s.write(ctx, func(t *tx) error {
		out = Pruned{}
		if out.Bundles, err = t.idle(below, keep); err != nil {
			return err
		}
		for _, n := range out.Bundles {
			for _, statement := range []string{
				`delete from rollout where bundle = $1`, `delete from bundle_blob where bundle = $1`, `delete from bundle where number = $1`,
			} {
				if _, err := t.do(statement, n); err != nil {
					return err
				}
			}
		}
		if len(out.Bundles) > 0 {
			if err := t.tell(who, "bundle.remove", map[string]any{"bundles": out.Bundles}); err != nil {
				return err
			}
		}
		old := s.Now().Add(-abandoned).UnixMicro()
		if out.Blobs, err = t.do(`delete from blob where sha256 in (select b.sha256 from blob b join upload u on u.id = b.upload
			where u.begun < $1 and not exists (select 1 from bundle_blob x where x.sha256 = b.sha256)
			and not exists (select 1 from request where what = 'publish' and state in ('waiting', 'approved') and expires > $3)
			and not exists (select 1 from live_list l where l.sha256 = b.sha256 or l.previous = b.sha256) limit $2 LOCKED)`, old, prunedBlobs, s.micros()); err != nil {
			return err
		}
		// What goes in pieces is given up first, or it could become a blob with some of them.
		if _, err := t.do(`update upload set begun = 0 where begun < $1 and not exists (select 1 from blob where blob.upload = upload.id)`, old); err != nil {
			return err
		}
		if out.Chunks, err = t.do(`delete from chunk where (upload, n) in (select c.upload, c.n from chunk c join upload u on u.id = c.upload
			where u.begun = 0 and not exists (select 1 from blob where blob.upload = u.id) limit $1)`, prunedChunks); err != nil {
			return err
		}
		_, err = t.do(`delete from upload where begun = 0 and not exists (select 1 from blob where blob.upload = upload.id)
			and not exists (select 1 from chunk where chunk.upload = upload.id)`)
		return err
	})
}

// idle are some bundles that Prune removes.
func (t *tx) idle(below int64, keep []int64) (numbers []int64, err error) {
	names := make([]string, len(keep))
	for i, n := range keep {
		names[i] = strconv.FormatInt(n, 10)
	}
	kept, err := list(names)
	if err != nil {
		return nil, err
	}
	err = t.store.query(t.ctx, t, func(scan func(...any) error) error {
		var n int64
		err := scan(&n)
		numbers = append(numbers, n)
		return err
	}, `select number from bundle where cast(number as text) not in NAMES($1) and number < $2
		and not exists (select 1 from desired d where d.bundle = bundle.number)
		and not exists (select 1 from rollout r where r.bundle = bundle.number and (r.closed = 0
			or r.id = (select max(id) from rollout) or exists (select 1 from desired d where d.rollout = r.id)))
		order by number limit $3`, kept, below, prunedBundles)
	return numbers, err
}
