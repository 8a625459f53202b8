package apply

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"sluice/internal/backend"
)

// newMark is unlike every other one, so that a state directory that was lost
// and begun again does not take an old policy for its own.
func newMark(generation int) string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails, says its documentation
	return fmt.Sprintf("%s%d_%s", backend.MarkPrefix, generation, hex.EncodeToString(random[:]))
}

// markAgain puts the mark back where somebody deleted it and the rules of the
// running generation are all there; else it is "". Without it, a change that
// fails would take the rules for none.
func (s *session) markAgain(ctx context.Context) (string, error) {
	if s.cur.Running == 0 {
		return "", nil
	}
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return "", nil //nolint:nilerr // what it was cannot be told, so it is not put back
	}
	want, err := s.held(g)
	if err != nil {
		return "", nil //nolint:nilerr // the same
	}
	have, err := s.Backend.Read(ctx, true)
	if err != nil {
		return "", fmt.Errorf("read what the kernel holds: %w", err)
	}
	if have.Empty() {
		return "", nil
	}
	differences, err := s.compare(ctx, want, have)
	if err != nil || len(differences) > 0 {
		return "", err
	}
	for _, step := range s.Backend.Marked(nil, g.Mark) {
		if err := step.Take(ctx); err != nil {
			return "", err
		}
	}
	return g.Mark, nil
}
