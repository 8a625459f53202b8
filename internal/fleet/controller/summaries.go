package controller

import (
	"context"
	"errors"
	"sync"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
)

// summaries are the roll-outs that were listed, by number: a list of them is asked for by each page
// that is open, and each has a state of all hosts in the database.
type summaries struct {
	mutex sync.Mutex
	of    map[int64]summarized
}

type summarized struct {
	version int64 // of the row
	is      rollout.Rollout
}

func (s *summaries) get(id, version int64) (rollout.Rollout, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	is, has := s.of[id]
	return is.is, has && is.version == version
}

func (s *summaries) put(id, version int64, is rollout.Rollout) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.of == nil || len(s.of) >= 2*mostRollouts {
		s.of = map[int64]summarized{}
	}
	s.of[id] = summarized{version, is}
}

// withoutHosts counts the hosts of a roll-out instead of naming each.
func withoutHosts(r rollout.Rollout) rollout.Rollout {
	r.Told = len(r.State.Hosts)
	for _, h := range r.State.Hosts {
		if h.Failed {
			r.Failed++
		}
	}
	r.State.Hosts, r.State.Asked, r.State.LeftOut, r.State.History = nil, nil, nil, nil
	return r
}

// summarize reports so many roll-outs, the newest first, as far as somebody may know of them.
func (o operator) summarize(ctx context.Context, who caller, most int) ([]rollout.Rollout, error) {
	rows, err := o.Store.Rollouts(ctx, most)
	if err != nil {
		return nil, err
	}
	all := []rollout.Rollout{}
	for _, row := range rows {
		is, open := o.driver.opened(row.ID)
		if !open && who.Hosts == nil {
			if kept, has := o.summaries.get(row.ID, row.Version); has {
				all = append(all, kept)
				continue
			}
		}
		if !open {
			whole, err := o.Store.Rollout(ctx, row.ID)
			if errors.Is(err, store.ErrNotFound) { // it was pruned meanwhile
				continue
			}
			if err == nil {
				is, err = o.current(whole)
			}
			if err != nil {
				return nil, err
			}
			o.summaries.put(row.ID, whole.Version, withoutHosts(is))
		}
		all = append(all, withoutHosts(o.within(who, is)))
	}
	return all, nil
}
