package apply

import (
	"context"
	"fmt"
	"slices"

	"sluice/internal/backend"
)

// A generation is loaded by the backend that it was lowered for. A change from one
// backend to another loads the new policy, which sets its mark, and only then takes the
// old one away: in between packets have to pass both. So at every moment a mark says
// what runs, and a change that was interrupted is finished or undone as any other.

// backends are all that this program has.
func (h *Host) backends() []backend.Backend { return append([]backend.Backend{h.Backend}, h.Others...) }

// With is the host with a backend of new policies, in place of its namesake.
func (h *Host) With(b backend.Backend) *Host {
	with := *h
	with.Backend = b
	with.Others = slices.DeleteFunc(h.backends(), func(other backend.Backend) bool { return other.Name() == b.Name() })
	return &with
}

// BackendOf is the backend of a generation.
func (h *Host) BackendOf(g *Generation) (backend.Backend, error) {
	for _, b := range h.backends() {
		if b.Name() == g.Backend {
			return b, nil
		}
	}
	return nil, fmt.Errorf("generation %d is of the backend %s, which this sluice does not have", g.Number, g.Backend)
}

// session is one that works with the backend of what runs.
func (h *Host) session(st store, cur *current) *session {
	s := &session{Host: h, Backend: h.Backend, store: st, cur: cur, banJournal: h.bansJournal()}
	s.followRunning()
	return s
}

// followRunning makes the session work with the backend of what runs.
func (s *session) followRunning() {
	if len(s.Others) == 0 {
		return
	}
	if g, err := s.generation(s.cur.Running); err == nil {
		if b, err := s.BackendOf(g); err == nil {
			s.Backend = b
		}
	}
}

// backendFor is the backend of an artifact; of none, that of the session.
func (s *session) backendFor(a backend.Artifact) backend.Backend {
	for _, b := range s.backends() {
		if a != nil && b.Name() == a.Backend() {
			return b
		}
	}
	return s.Backend
}

// mark reads the mark of what runs, "" where there is none. Where a change from one
// backend to another is under way there may be two, of which the first counts that is
// asked for.
func (h *Host) mark(ctx context.Context, first ...string) (string, error) {
	var found []string
	for _, b := range h.backends() {
		mark, _, err := b.Mark(ctx)
		if err != nil {
			return "", err
		}
		if mark != "" {
			found = append(found, mark)
		}
	}
	for _, mark := range first {
		if slices.Contains(found, mark) {
			return mark, nil
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	return found[0], nil
}

// empty says that the kernel has no rules of any backend.
func (h *Host) empty(ctx context.Context) (bool, error) {
	for _, b := range h.backends() {
		have, err := b.Read(ctx, false)
		if err != nil || !have.Empty() {
			return false, err
		}
	}
	return true, nil
}

// removals are the steps that remove what backends beside one hold.
func (h *Host) removals(ctx context.Context, beside backend.Backend) ([]backend.Step, error) {
	var out []backend.Step
	for _, b := range h.backends() {
		if b.Name() == beside.Name() {
			continue
		}
		mark, _, err := b.Mark(ctx)
		if err != nil {
			return nil, err
		}
		have, err := b.Read(ctx, false)
		if err != nil {
			return nil, fmt.Errorf("read what the kernel holds: %w", err)
		}
		if mark == "" && have.Empty() {
			continue
		}
		steps, err := b.Steps(nil, have)
		if err != nil {
			return nil, fmt.Errorf("plan the transactions: %w", err)
		}
		out = append(out, b.Marked(steps, "")...)
	}
	return out, nil
}

// emptyOthers removes what other backends than that of the session hold.
func (s *session) emptyOthers(ctx context.Context) error {
	steps, err := s.removals(ctx, s.Backend)
	if err != nil {
		return err
	}
	for _, step := range steps {
		s.point("before removal: " + step.Name)
		if err := step.Take(ctx); err != nil {
			return fmt.Errorf("remove what ran before: %s: %w", step.Name, err)
		}
	}
	return nil
}
