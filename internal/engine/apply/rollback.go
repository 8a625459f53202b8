package apply

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Before asks Rollback for what was before the running generation.
const Before = -1

// errNothingBefore is for a rollback where no policy runs, errFirst for one from the first
// policy. It may run again, after later ones.
var (
	errNothingBefore = remedied(SeeHistoryOrRemove, errors.New("there is nothing to go back to: no policy ran before"))
	errFirst         = remedied(GoToOrRemove, errors.New("there is nothing to go back to: no policy ran before this one was first applied"))
)

// Rollback goes to generation n, or for Before to what was before the running
// one. A policy that waits for confirmation is given up by it.
func (h *Host) Rollback(ctx context.Context, n int, o Options, peers []SSHClient) (*Outcome, error) {
	switch {
	case h.known():
	case n == Before:
		return nil, errNothingBefore
	case n > 0:
		return nil, &MissingError{n}
	}
	s, ctx, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	pending := s.cur.Pending
	switch {
	case n == Before && s.late != nil:
		out := &Outcome{Notes: []string{s.late.over()}}
		s.describe(out)
		return out, nil
	case n == Before && pending != nil:
		err = s.takeBack(ctx, pending, rolledBack)
	case n == 0:
		return nil, remedied(Remove, errors.New("there is no generation 0"))
	default:
		err = s.rollTo(ctx, n, o, peers)
	}
	if err != nil {
		return nil, err
	}
	s.remember(&reading{})
	disarm(pending)
	out := &Outcome{}
	s.describe(out)
	return out, nil
}

func (s *session) rollTo(ctx context.Context, n int, o Options, peers []SSHClient) error {
	if n == Before {
		var err error
		if n, err = s.appliedBefore(); err != nil {
			return err
		}
	}
	c, err := s.toLoad(ctx, n)
	switch {
	case err != nil:
		return err
	case c.to.Closed:
		return remedied(SeeOthers, fmt.Errorf("generation %d is the closed policy, which a failed restore loaded: you cannot go back to it\n  nothing changed", n))
	}
	if err := s.refuseLifted(c.to, o); err != nil {
		return err
	}
	p, err := s.program(c.to)
	switch {
	case err == nil:
		err = s.admitClients(p, peers, &o)
	case o.Force:
		s.note("cannot determine whether this locks you out: %v", err)
		err = nil
	default:
		err = remedied(ForceBack, err)
	}
	if err != nil {
		return err
	}
	if o.lockOut != nil {
		s.note("%v", o.lockOut)
	}
	if c.fitted != nil {
		s.note("%v", c.fitted.leftOut())
	}
	c.what, c.wait, c.confirm, c.verify, c.peers = rolledBack, o.Confirm, o.Confirm == 0, o.Verify, peers
	return s.change(ctx, c)
}

// appliedBefore is the generation that was applied before the running one. The closed policy
// is none: it stood in for one that could not be restored.
func (s *session) appliedBefore() (int, error) {
	n := s.cur.Running
	for {
		g, err := s.generation(n)
		switch {
		case n == 0 && s.cur.Running == 0 && s.newest(confirmed) != nil:
			return 0, s.nothingBoots("nothing runs to go back from: %s")
		case n == 0 && s.cur.Running == 0:
			return 0, errNothingBefore
		case n == 0:
			return 0, errFirst
		case n != s.cur.Running && err != nil:
			return 0, s.lostBefore(n, err)
		case err != nil:
			return 0, err
		case n != s.cur.Running && !g.Closed:
			return n, nil
		case n != s.cur.Running:
			s.note("generation %d is the closed policy, which nobody applied: it is skipped", n)
		}
		if g.Previous >= n {
			return 0, &DamagedError{filepath.Join(s.dir, generationName(n)), errors.New("what ran before it cannot be")}
		}
		n = g.Previous
	}
}

// lostBefore says that generation n, which ran before, cannot be read, and which is the
// newest before it that can.
func (s *session) lostBefore(n int, cause error) error {
	out := RemedyError{Remedy: SeeHistory}
	numbers, _ := s.numbers()
	for _, older := range slices.Backward(numbers) {
		if g, err := s.generation(older); older < n && err == nil && !g.Closed && !g.Confirmed.IsZero() {
			out.Remedy, out.Generation = GoTo, older
			break
		}
	}
	if isMissing(cause) {
		cause = errors.New("it is no longer in the state directory")
	}
	out.Err = fmt.Errorf("generation %d, which ran before, cannot be read: %w\n  nothing changed", n, cause)
	return &out
}

// Remove removes everything of Sluice in the kernel; history stays.
func (h *Host) Remove(ctx context.Context) (*Outcome, error) {
	if !h.known() {
		if nothing, err := h.holdsNothing(ctx); err != nil || nothing {
			return &Outcome{Unchanged: true}, err
		}
	}
	s, ctx, err := h.openUnsettled(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	// What cannot be settled is removed anyway.
	if err := s.settle(ctx); err != nil {
		s.note("%v", err)
	}
	if nothing, err := s.holdsNothing(ctx); err == nil && nothing && s.cur.Running == 0 && s.cur.Boot == 0 && s.cur.Lost == "" {
		return &Outcome{Unchanged: true}, nil
	}
	pending := s.cur.Pending
	nothing := 0
	if err := s.change(ctx, change{what: removed, boot: &nothing}); err != nil {
		return nil, err
	}
	disarm(pending)
	return &Outcome{}, nil
}

// holdsNothing says that the kernel has nothing of Sluice.
func (h *Host) holdsNothing(ctx context.Context) (bool, error) {
	if err := needRoot(); err != nil {
		return false, err
	}
	mark, err := h.mark(ctx)
	if err != nil || mark != "" {
		return false, err
	}
	return h.empty(ctx)
}
