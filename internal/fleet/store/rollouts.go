package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Rollout brings a bundle to hosts. What its plan and state mean the store does not know.
type Rollout struct {
	ID      int64           `json:"id"` // from 1; 0 where one is to be made
	Bundle  int64           `json:"bundle"`
	Version int64           `json:"version"` // how often it was written; see [Store.Move]
	Phase   string          `json:"phase"`
	Closed  bool            `json:"closed"` // no step follows
	Plan    json.RawMessage `json:"plan"`
	State   json.RawMessage `json:"state"`
	Created time.Time       `json:"created"` // this and the rest are written by the store
	Changed time.Time       `json:"changed"`
	By      string          `json:"by"`
}

// Move is what one step does: the roll-outs that it makes or changes, and what hosts are
// to run because of it.
type Move struct {
	Rollouts []Rollout
	Desired  []Desired // of roll-out 0: of the first of Rollouts, whose number a new one has only then
}

// Move does all of a step in one transaction, or nothing of it, and returns the roll-outs
// as they are then. One with ID 0 is made. Another is written (phase, closed, plan and
// state) if its version is still the one given, else the answer is ErrConflict: somebody
// else has moved it since it was read.
//
// What is the name of it in the audit. Where no phase and no desired state changes, it is
// a step that nobody need be told of, with neither revision nor entry.
func (s *Store) Move(ctx context.Context, who, what string, m Move) (out []Rollout, err error) {
	return out, s.write(ctx, func(t *tx) error {
		out, err = t.move(who, what, m)
		return err
	})
}

func (t *tx) move(who, what string, m Move) ([]Rollout, error) {
	diff := map[string]any{}
	var moved []map[string]any
	var ids []string
	out := make([]Rollout, len(m.Rollouts))
	for i, r := range m.Rollouts {
		before, after, err := t.rollout(who, r)
		if err != nil {
			return nil, err
		}
		out[i] = after
		if before != after.Phase {
			ids = append(ids, strconv.FormatInt(after.ID, 10))
			moved = append(moved, map[string]any{"rollout": after.ID, "bundle": after.Bundle, "from": before, "to": after.Phase})
		}
	}
	if len(moved) > 0 {
		t.changed("rollout", ids...)
		diff["moved"] = moved
	}
	desired := make([]Desired, len(m.Desired))
	for i, d := range m.Desired {
		if d.Rollout == 0 && len(out) > 0 {
			d.Rollout = out[0].ID
		}
		desired[i] = d
	}
	changed, err := t.desired(desired)
	if err != nil {
		return nil, err
	}
	if len(changed) > 0 {
		diff["desired"] = changed
	}
	if len(diff) == 0 {
		return out, nil
	}
	return out, t.tell(who, what, diff)
}

// rollout writes one roll-out; before is its phase until then.
func (t *tx) rollout(who string, r Rollout) (before string, after Rollout, err error) {
	now := t.store.micros()
	if r.ID == 0 {
		if err := t.bundlesExist([]Desired{{Bundle: r.Bundle}}); err != nil {
			return "", r, err
		}
		// Two at the same time: one of them fails here, and starts again.
		err := t.one([]any{&r.ID}, `insert into rollout (id, bundle, version, phase, closed, plan, state, created, changed, created_by)
			select coalesce(max(id), 0) + 1, cast($1 as bigint), 1, cast($2 as text), cast($3 as bigint), cast($4 as text), cast($5 as text),
			cast($6 as bigint), cast($6 as bigint), cast($7 as text) from rollout returning id`,
			r.Bundle, r.Phase, number(r.Closed), string(r.Plan), string(r.State), now, who)
		r.Version, r.Created, r.Changed, r.By = 1, moment(now), moment(now), who
		return "", r, err
	}
	has, err := t.store.rollouts(t.ctx, t, ` where id = $1 LOCKED`, r.ID)
	switch {
	case err != nil:
		return "", r, err
	case len(has) == 0:
		return "", r, fmt.Errorf("roll-out %d: %w", r.ID, ErrNotFound)
	case has[0].Version != r.Version:
		return "", r, fmt.Errorf("roll-out %d: %w: it has version %d, not %d", r.ID, ErrConflict, has[0].Version, r.Version)
	}
	_, err = t.do(`update rollout set version = version + 1, phase = $2, closed = $3, plan = $4, state = $5, changed = $6 where id = $1`,
		r.ID, r.Phase, number(r.Closed), string(r.Plan), string(r.State), now)
	after = has[0]
	after.Version, after.Phase, after.Closed, after.Plan, after.State, after.Changed = r.Version+1, r.Phase, r.Closed, r.Plan, r.State, moment(now)
	return has[0].Phase, after, err
}

// Rollouts are so many, the newest first, without plan and state, which has each host.
func (s *Store) Rollouts(ctx context.Context, most int) ([]Rollout, error) {
	return s.rolloutsWith(ctx, s.reader, `'', ''`, ` order by id desc limit $1`, most)
}

// OpenRollouts are those that are not closed, the newest first.
func (s *Store) OpenRollouts(ctx context.Context) ([]Rollout, error) {
	return s.openRollouts(ctx, s.reader)
}

func (s *Store) openRollouts(ctx context.Context, q querier) ([]Rollout, error) {
	return s.rollouts(ctx, q, ` where closed = 0 order by id desc`)
}

// Rollout is one roll-out.
func (s *Store) Rollout(ctx context.Context, id int64) (Rollout, error) {
	found, err := s.rollouts(ctx, s.reader, ` where id = $1`, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("roll-out %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Rollout{}, err
	}
	return found[0], nil
}

func (s *Store) rollouts(ctx context.Context, q querier, where string, args ...any) ([]Rollout, error) {
	return s.rolloutsWith(ctx, q, "plan, state", where, args...)
}

func (s *Store) rolloutsWith(ctx context.Context, q querier, long, where string, args ...any) ([]Rollout, error) {
	var out []Rollout
	err := s.query(ctx, q, func(scan func(...any) error) error {
		var r Rollout
		var closed, created, changed int64
		var plan, state string
		err := scan(&r.ID, &r.Bundle, &r.Version, &r.Phase, &closed, &plan, &state, &created, &changed, &r.By)
		r.Closed, r.Plan, r.State = closed != 0, json.RawMessage(plan), json.RawMessage(state)
		r.Created, r.Changed = moment(created), moment(changed)
		out = append(out, r)
		return err
	}, `select id, bundle, version, phase, closed, `+long+`, created, changed, created_by from rollout`+where, args...)
	return out, err
}

// number is a truth as a column has it.
func number(truth bool) int64 {
	if truth {
		return 1
	}
	return 0
}
