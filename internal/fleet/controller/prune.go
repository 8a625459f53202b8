package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// How often the database is looked through for what nobody needs any more, and how long it is
// left alone between two steps of removing that.
const (
	pruneEvery = time.Hour
	pruneRest  = 100 * time.Millisecond
)

func (c *Controller) pruneHourly(ctx context.Context) {
	for range ticks(ctx, pruneEvery) {
		if err := c.prune(ctx); err != nil && ctx.Err() == nil {
			c.Note(fmt.Errorf("remove old bundles from the database: %w", err))
		}
		if err := c.Store.PruneAccess(ctx); err != nil && ctx.Err() == nil {
			c.Note(fmt.Errorf("remove old tokens from the database: %w", err))
		}
		if err := c.Store.PruneRequests(ctx); err != nil && ctx.Err() == nil {
			c.Note(fmt.Errorf("remove old requests from the database: %w", err))
		}
		if err := c.Store.PruneDrafts(ctx); err != nil && ctx.Err() == nil {
			c.Note(fmt.Errorf("remove old drafts from the database: %w", err))
		}
		if err := c.pruneNotices(ctx); err != nil && ctx.Err() == nil {
			c.Note(fmt.Errorf("remove old notices from the database: %w", err))
		}
	}
}

// prune removes bundles that targets.json has dropped, unless a host runs them or may be
// told to go back to them, and the blobs of none.
func (c *Controller) prune(ctx context.Context) error {
	listed := c.online.State().Bundles // by number
	if len(listed) == 0 {
		return nil
	}
	keep, err := c.run(ctx)
	if err != nil {
		return err
	}
	for {
		removed, err := c.Store.Prune(ctx, self, listed[0].Number, keep)
		c.answered(err)
		if err != nil || len(removed.Bundles) == 0 && removed.Blobs == 0 && removed.Chunks == 0 {
			return err
		}
		c.contents.drop(removed.Bundles)
		select {
		case <-time.After(pruneRest):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run are the bundles that hosts have said that they run, here or to another controller, and
// those that open roll-outs may send them back to.
func (c *Controller) run(ctx context.Context) ([]int64, error) {
	used := map[int64]bool{}
	said, err := c.Store.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range said {
		var p proof
		if s.Proof != "" {
			if err := json.Unmarshal([]byte(s.Proof), &p); err != nil {
				return nil, err
			}
		}
		used[s.Bundle], used[p.Running], used[p.Settled] = true, true, true
	}
	c.statuses.mutex.Lock()
	for _, k := range c.statuses.of {
		used[k.report.Bundle], used[k.report.Running], used[k.settled] = true, true, true
	}
	c.statuses.mutex.Unlock()
	c.driver.moving.Lock()
	defer c.driver.moving.Unlock()
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	for _, d := range c.driver.open {
		for _, h := range d.State.Hosts {
			used[h.Before] = true
		}
	}
	return slices.Collect(maps.Keys(used)), nil
}

// drop forgets what bundles are made of.
func (cs *contents) drop(bundles []int64) {
	cs.mutex.Lock()
	defer cs.mutex.Unlock()
	for _, n := range bundles {
		delete(cs.bundles, n)
	}
}
