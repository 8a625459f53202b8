package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// ClosedError says that the confirmed policy could not be loaded, and what
// stands instead.
type ClosedError struct {
	Cause error
	Ports []uint16 // that ssh is open at
	Err   error    // where even the closed policy could not be loaded
}

func (e *ClosedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the confirmed policy cannot be loaded: %v\n  the closed policy cannot either: %v\n  the host is NOT protected", e.Cause, e.Err)
	}
	ports := strings.Trim(fmt.Sprint(e.Ports), "[]")
	return fmt.Sprintf("the confirmed policy cannot be loaded: %v\n  the host is closed, with ssh open at port %s", e.Cause, ports)
}

func (e *ClosedError) Unwrap() error { return e.Cause }

// LeftError says that what waits could not be applied, and that the rules which the
// kernel holds were left as they are.
type LeftError struct{ Cause error }

func (e *LeftError) Error() string {
	return fmt.Sprintf("%v\n  what the kernel holds is left as it is", e.Cause)
}

func (e *LeftError) Unwrap() error { return e.Cause }

// left is what a restore of what waits ends with instead of closing a host whose rules
// run; nil where it may be closed.
func (h *Host) left(ctx context.Context, r Restoring, cause error) error {
	if !r.Waiting {
		return nil
	}
	if mark, err := h.mark(ctx); err == nil && mark == "" {
		return nil
	}
	return &LeftError{cause}
}

// Restoring is what a restore needs to know of the host.
type Restoring struct {
	SSHPorts []uint16 // where ssh is managed now; those of the generation and port 22 are added
	// Waiting loads only what waited for an interface that is there by now, or does
	// not run. A policy that waits for confirmation is left alone. Where rules run,
	// what fails never closes the host: the error is then a *LeftError.
	Waiting bool
}

func (r *Restoring) addPorts(ports ...uint16) {
	for _, p := range ports {
		if !slices.Contains(r.SSHPorts, p) {
			r.SSHPorts = append(r.SSHPorts, p)
		}
	}
	slices.Sort(r.SSHPorts)
}

// Restore loads the last confirmed generation: at boot, and after somebody took
// the rules away. When it cannot, the host is closed except for ssh; the error is
// then a *ClosedError. Where the generation cannot be read and its rules surely run,
// they stay, and the error is an *UnreadableError.
func (h *Host) Restore(ctx context.Context, r Restoring) (*Outcome, error) {
	r.addPorts(22)
	if err := needRoot(); err == nil && !h.known() {
		h.note("no policy was ever confirmed: nothing is loaded")
		return &Outcome{Unchanged: true}, nil
	}
	s, ctx, err := h.openUnsettled(ctx)
	var busy *BusyError
	switch {
	case errors.As(err, &busy), ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, h.closeBlind(ctx, r, err)
	}
	defer s.close()
	defer s.soften()()
	if err := s.settle(ctx); err != nil {
		s.note("%v", err)
	}
	if r.Waiting {
		if waits, err := s.somethingWaits(ctx); err != nil || !waits {
			out := &Outcome{Unchanged: true}
			s.describe(out)
			return out, err
		}
	}
	if s.cur.Lost != "" {
		r.addPorts(s.lastPorts()...)
		return nil, s.closeHost(ctx, r, errors.New(s.cur.Lost))
	}
	boot := s.cur.Boot
	if s.kept != nil {
		boot = s.kept.Generation // until the next boot
	}
	if boot == 0 {
		s.note("%v", s.nothingBoots("%s: nothing is loaded"))
		return &Outcome{Generation: s.cur.Running, Unchanged: true}, nil
	}
	pending := s.cur.Pending
	out := &Outcome{}
	if g, err := s.generation(boot); err == nil {
		r.addPorts(g.SSHPorts...)
	}
	c, err := s.toLoad(ctx, boot)
	if err != nil {
		if err := s.stands(ctx, boot, err); err != nil {
			return nil, err
		}
	} else {
		c.what = restored
		err = s.change(ctx, c)
	}
	if err != nil {
		return nil, s.closeHost(ctx, r, err)
	}
	disarm(pending)
	s.describe(out)
	if c.fitted != nil {
		out.Notes = append(out.Notes, s.words(c.fitted.leftOut()))
	}
	if now, err := s.sides(); err == nil {
		out.Fixed = s.fixed(now, false) // what is not there may come: a boot restores before the network
	}
	c.verify = true
	err = s.verify(ctx, c)
	s.remember(&reading{})
	return out, err
}

// lastPorts is where ssh was managed under the newest generation that can be read.
func (s store) lastPorts() []uint16 {
	numbers, _ := s.numbers()
	for _, n := range slices.Backward(numbers) {
		if g, err := s.generation(n); err == nil && !g.Closed {
			return g.SSHPorts
		}
	}
	return nil
}

// closeHost loads the closed policy as a generation that can never boot.
func (s *session) closeHost(ctx context.Context, r Restoring, cause error) error {
	return s.closed(ctx, r, cause, func(p *program.Program, artifact backend.Artifact) error {
		if s.closeWritten(ctx, p, artifact) == nil {
			return nil
		}
		// A state that cannot be written must not leave the host open.
		return s.closeUnwritten(ctx, artifact)
	})
}

// closed is what a restore ends with that load closes the host for.
func (h *Host) closed(ctx context.Context, r Restoring, cause error, load func(*program.Program, backend.Artifact) error) error {
	if err := h.left(ctx, r, cause); err != nil {
		return err
	}
	p := closedProgram(h.Namespace, r.SSHPorts)
	artifact, err := h.Backend.Lower(p, nil)
	if err == nil {
		err = load(p, artifact)
	}
	e := &ClosedError{Cause: cause, Ports: r.SSHPorts, Err: err}
	logCritical(h.words(e))
	return e
}

func (s *session) closeWritten(ctx context.Context, p *program.Program, artifact backend.Artifact) error {
	encoded, err := artifact.Encode()
	if err != nil {
		return err
	}
	// It is written, or it is not a generation.
	strict := *s
	strict.soft = nil
	g, err := strict.write(Input{Policy: "closed", Program: p, Artifact: artifact}, listed(encoded))
	if err != nil {
		return err
	}
	g.Closed = true
	if err := strict.saveGeneration(g); err != nil {
		return err
	}
	return s.change(ctx, change{what: applied, to: g, artifact: artifact, isNew: true})
}

// closeBlind loads the closed policy where the state cannot be used at all.
func (h *Host) closeBlind(ctx context.Context, r Restoring, cause error) error {
	return h.closed(ctx, r, cause, func(_ *program.Program, artifact backend.Artifact) error { return h.closeUnwritten(ctx, artifact) })
}

func (h *Host) closeUnwritten(ctx context.Context, artifact backend.Artifact) error {
	have, err := h.Backend.Read(ctx, true)
	if err != nil {
		return err
	}
	steps, err := h.Backend.Steps(artifact, have)
	if err != nil {
		return err
	}
	removals, err := h.removals(ctx, h.Backend)
	if err != nil {
		return err
	}
	for _, step := range append(h.Backend.Marked(steps, newMark(0)), removals...) {
		if err := step.Take(ctx); err != nil {
			return err
		}
	}
	return nil
}
