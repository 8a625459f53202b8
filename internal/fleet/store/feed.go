package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Change is what a revision changed: one of the kinds host, guest, desired, rollout, list,
// trust and fleet, and the names of those of its kind.
type Change struct {
	Revision int64    `json:"-"`
	Kind     string   `json:"kind"`
	IDs      []string `json:"ids,omitempty"`
}

// Feed is what changed after a revision, up to a position.
type Feed struct {
	Position
	Changes []Change
	Whole   bool // it does not reach back so far, or is damaged: only a [Snapshot] says what is
}

// Changes are those behind a revision.
func (s *Store) Changes(ctx context.Context, after int64) (feed Feed, err error) {
	err = s.consistent(ctx, func(q querier) error {
		f, err := s.fleet(ctx, q)
		if err != nil {
			return err
		}
		feed = Feed{Position: f.Position}
		rows := int64(0)
		err = s.query(ctx, q, func(scan func(...any) error) error {
			rows++
			var revision int64
			var entries string
			if err := scan(&revision, &entries); err != nil {
				return err
			}
			var changes []Change
			feed.Whole = feed.Whole || json.Unmarshal([]byte(entries), &changes) != nil // somebody has changed it by hand
			for _, c := range changes {
				c.Revision = revision
				feed.Changes = append(feed.Changes, c)
			}
			return nil
		}, `select revision, entries from change where revision > $1 order by revision`, after)
		if feed.Whole || rows != f.Revision-after { // thrown away since, or never of this database
			feed.Changes, feed.Whole = nil, true
		}
		return err
	})
	return feed, err
}

// Snapshot is all of the desired state at one position.
type Snapshot struct {
	Fleet    Fleet
	Hosts    []Host
	Guests   []Guest
	Desired  []Desired
	Rollouts []Rollout // those that are not closed
	Bundles  []Bundle
	Metadata []Metadata
}

// Snapshot reads all of the desired state, as it was at one moment.
func (s *Store) Snapshot(ctx context.Context) (out Snapshot, err error) {
	err = s.consistent(ctx, func(q querier) (err error) {
		if out.Fleet, err = s.fleet(ctx, q); err != nil {
			return err
		}
		if out.Hosts, err = s.hosts(ctx, q, nil, ""); err != nil {
			return err
		}
		if out.Guests, err = s.guests(ctx, q, nil); err != nil {
			return err
		}
		if out.Desired, err = s.desired(ctx, q, nil); err != nil {
			return err
		}
		if out.Rollouts, err = s.openRollouts(ctx, q); err != nil {
			return err
		}
		if out.Bundles, err = s.bundles(ctx, q); err != nil {
			return err
		}
		out.Metadata, err = s.metadata(ctx, q)
		return err
	})
	if err != nil {
		return Snapshot{}, err
	}
	return out, nil
}

// consistent reads what belongs together, all of one moment.
func (s *Store) consistent(ctx context.Context, f func(querier) error) error {
	t, err := s.reader.BeginTx(ctx, s.dialect.snapshot)
	if err != nil {
		return fmt.Errorf("begin to read: %w", err)
	}
	defer func() { _ = t.Rollback() }() // nothing was written
	return f(t)
}

// poll is how long a change may go unnoticed where nothing reports it.
const poll = time.Second

// Wait returns when the revision is another one than that given. A change by this process
// wakes it at once, one by another process in PostgreSQL soon; besides it looks once a
// second. It returns an error when the database does not answer.
func (s *Store) Wait(ctx context.Context, revision int64) (Position, error) {
	for {
		rung := s.bell.next()
		f, err := s.Fleet(ctx)
		if err != nil || f.Revision != revision {
			return f.Position, err
		}
		again := time.NewTimer(poll)
		select {
		case <-rung:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return f.Position, ctx.Err()
		}
		again.Stop()
	}
}
