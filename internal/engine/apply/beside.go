package apply

import (
	"context"
	"fmt"
	"slices"

	"sluice/internal/backend"
)

// While a policy waits for confirmation, the sets of what returns without it stay
// in the kernel, used by no rule: going back is then one small transaction that fills
// nothing. They are swept when the policy is confirmed.

// beside is an artifact on trial with what stays in the kernel beside it; the artifact
// itself where nothing does.
func (s *session) beside(a backend.Artifact, p *Pending) backend.Artifact {
	own, can := a.(backend.Kept)
	if !can || p == nil || p.Previous == 0 {
		return a
	}
	g, err := s.generation(p.Previous)
	if err != nil {
		return a
	}
	older, err := s.artifactOf(g)
	if err != nil {
		return a
	}
	return own.Beside(older)
}

// trialOf is the trial that a generation is on; nil where it is on none.
func (s *session) trialOf(n int) *Pending {
	if p := s.cur.Pending; p != nil && p.Generation == n {
		return p
	}
	return nil
}

// sweepKept sweeps what stayed in the kernel for a trial that is over. Where that
// cannot be done, the next command tries again.
func (s *session) sweepKept(ctx context.Context) {
	if !s.cur.Unswept || s.cur.Pending != nil || s.cur.Running == 0 {
		return
	}
	swept, err := s.sweepUnused(ctx)
	if err != nil {
		s.note("sets of the policy before stay in the kernel until the next command: %v", err)
	}
	if !swept {
		return
	}
	s.point("swept")
	s.cur.Unswept = false
	if err := s.saveCurrent(s.cur); err != nil {
		s.note("%v", err)
	}
}

// sweepUnused runs the steps that sweep, and no others: what else differs, such as a
// default route that has moved, is for other commands to fix. Where the rules
// themselves differ, nothing is swept: they may use it.
func (s *session) sweepUnused(ctx context.Context) (swept bool, err error) {
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return false, err
	}
	mark, err := s.mark(ctx)
	if err != nil || mark != g.Mark {
		return false, err
	}
	artifact, err := s.held(g)
	if err != nil {
		return false, err
	}
	since := s.instantNow()
	have, err := s.Backend.Read(ctx, true)
	if err != nil {
		return false, fmt.Errorf("read what the kernel holds: %w", err)
	}
	if with, is := artifact.(backend.Following); is {
		artifact = with.Holding(s.lastHeld(with)) // rules name what was held, wherever the host is now
	}
	steps, err := s.Backend.Steps(s.asking(artifact), have)
	if err != nil {
		return false, fmt.Errorf("plan the transactions: %w", err)
	}
	if slices.ContainsFunc(steps, func(step backend.Step) bool { return step.Purpose == backend.Switch }) {
		return false, nil
	}
	for _, step := range steps {
		if step.Purpose != backend.Sweep {
			continue
		}
		if err := step.Take(ctx); err != nil {
			return false, fmt.Errorf("%s %s: %w", step.Purpose, step.Name, err)
		}
	}
	s.stayReading(since, "", "")
	return true, nil
}
