package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// Synced is what Sync did.
type Synced struct {
	Generation int    `json:"generation"`
	Nothing    bool   `json:"nothing-runs,omitempty"` // no policy runs, and none is to be loaded
	Moves      []Move `json:"moves"`                  // that were applied; none: nothing changed
	// Lost: there is no default route, so that the last known interfaces stay.
	Lost []string `json:"lost,omitempty"`
	// Loaded is the generation that was loaded again, since an interface is there that
	// it was loaded without, since it had other exceptions than hold, or since nothing ran.
	Loaded int `json:"loaded,omitempty"`
	// Fixed is what rules name themselves and the host has otherwise by now.
	Fixed []string `json:"fixed,omitempty"`
}

// Sync brings the sets that follow the host to what it is now, in one transaction, then
// the rules that name what a set holds in another, and nothing else. Where they hold that already, nothing is changed. Rules are loaded only
// where a confirmed policy waits for an interface that is there now, or does not run, or where
// other exceptions hold than the rules have, which is Restorer's. With an error it returns what was applied before, nil where nothing was.
func (h *Host) Sync(ctx context.Context) (*Synced, error) {
	if !h.known() {
		return &Synced{Moves: []Move{}, Nothing: true}, needRoot()
	}
	s, ctx, err := h.openUnsettled(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.sync(ctx)
	waits := false
	if err == nil {
		waits, err = s.somethingWaits(ctx)
	}
	if err == nil && !waits && s.cur.Running != 0 {
		waits = s.lacksExceptions()
	}
	s.close()
	if !waits {
		return out, err
	}
	restore := h.Restorer
	if restore == nil {
		restore = h.restoreWaiting
	}
	loaded, err := restore(ctx)
	if err != nil {
		return out, err
	}
	if !loaded.Unchanged {
		out.Generation, out.Loaded, out.Nothing = loaded.Generation, loaded.Generation, false
	}
	return out, nil
}

func (h *Host) restoreWaiting(ctx context.Context) (*Outcome, error) {
	return h.Restore(ctx, Restoring{SSHPorts: SSHPorts(), Waiting: true})
}

func (s *session) sync(ctx context.Context) (*Synced, error) {
	mark, err := s.mark(ctx)
	if err != nil {
		return nil, err
	}
	f, err := s.followedAs(ctx, mark)
	if err != nil {
		return nil, err
	}
	out := &Synced{Generation: s.cur.Running, Moves: []Move{}, Nothing: mark == ""}
	follower, can := s.Backend.(backend.Follower)
	if mark == "" || len(f.Sets) == 0 || !can {
		return out, nil
	}
	facts, err := s.sides()
	if err != nil {
		return nil, err
	}
	now := heldNow(facts, f.Sets, s.afresh(facts, f.Sets, f.Held))
	out.Lost = lost(facts, now)
	since := s.instantNow()
	have := map[string]program.Held{}
	for _, set := range f.Sets {
		have[set.ID], err = follower.Holds(ctx, set)
		if errors.Is(err, backend.ErrNotThere) {
			return out, nil // the rules went with it
		}
		if err != nil {
			return nil, fmt.Errorf("read set %s: %w", set.ID, err)
		}
	}
	edit := follower.Follow(f.Sets, have, now)
	if edit != nil {
		if err := edit.Take(ctx); err != nil {
			return nil, fmt.Errorf("update the rules for the host: %w", err)
		}
	}
	out.Moves = append(out.Moves, f.moves(now)...)
	if edit == nil && len(out.Moves) == 0 {
		return out, nil
	}
	if err := f.turn(ctx, follower); err != nil {
		return nil, fmt.Errorf("update the rules for the host: %w", err)
	}
	s.point("synced")
	s.stayReading(since, "", "")
	if len(out.Moves) == 0 {
		s.note("sets that follow the host had drifted, and are fixed")
		return out, nil
	}
	at := s.now()
	f.Moves = f.moved(now, at)
	for i := range out.Moves {
		out.Moves[i].Taken = at
	}
	maps.Copy(f.Held, now)
	return out, s.writeJSON(followedFile, f)
}

// turn makes the rules name what the sets hold.
func (f *followed) turn(ctx context.Context, follower backend.Follower) error {
	if len(f.Rules) == 0 {
		return nil
	}
	turned, err := follower.Turned(ctx, f.Rules)
	if err != nil || turned == nil {
		return err
	}
	return turned.Take(ctx)
}

// followedAs is what has to be known of the policy under a mark: from its own file, else
// from its artifact.
func (s *session) followedAs(ctx context.Context, mark string) (*followed, error) {
	f, err := s.followed()
	if err == nil && mark != "" && f.Mark == mark {
		return f, nil
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if f, err = s.followed(); err != nil {
		return nil, err
	}
	g, err := s.generation(s.cur.Running)
	if mark == "" || err != nil {
		return &followed{}, nil //nolint:nilerr // what runs, and what is to be done, is asked by somethingWaits
	}
	if f.Mark == g.Mark {
		return f, nil
	}
	a, err := s.held(g)
	if err != nil {
		return nil, &LeftError{err}
	}
	out := &followed{Format: format, Mark: g.Mark, Held: map[string]program.Held{}, First: map[string]program.Held{}}
	maps.Copy(out.Held, f.Held)
	if with, is := a.(backend.Following); is {
		out.Sets, out.Rules, out.First = with.Follows(), with.Named(), with.Held()
		maps.Copy(out.Held, out.First)
	}
	return out, nil
}
