package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// A disk that is full, read-only or broken keeps no host from its confirmed policy,
// and no trial alive. What loads a policy that is on disk already, at boot and on the
// way back from a trial, needs no file: what cannot be written is told of, and who
// comes next finds by the kernel's mark and by the record of the trial what happened to
// it. The record and the journal are then left as they are: a journal is ended only
// when the record says what it said.

// unsaved is what a disk did not take while that was no reason to fail.
type unsaved struct{ err error }

// UnwritableError says that the disk does not take the state.
type UnwritableError struct {
	Dir string // of the state
	Err error  // why, without the name of a temporary file
}

func (e *UnwritableError) Error() string {
	return fmt.Sprintf("the state in %s cannot be written: %v", e.Dir, e.Err)
}

func (e *UnwritableError) Unwrap() error { return e.Err }

func (s store) unwritable(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return &UnwritableError{s.dir, err}
}

// nothingDone is the error of a command that the disk stopped before its first effect:
// it says so, and the way out.
func (s store) nothingDone(err error) error {
	var e *UnwritableError
	var errno syscall.Errno
	switch {
	case errors.As(err, &e):
		err = e
	case errors.As(err, &errno) && slices.Contains([]syscall.Errno{syscall.ENOSPC, syscall.EROFS, syscall.EDQUOT, syscall.EIO}, errno):
		err = s.unwritable(err)
	default:
		return err
	}
	return remedied(FreeDisk, fmt.Errorf("%w\n  nothing changed", err))
}

// refuse is the error of a write, or nil where it is no reason to fail.
func (s store) refuse(err error) error {
	if err == nil || s.soft == nil {
		return err
	}
	if s.soft.err == nil {
		s.soft.err = err
	}
	return nil
}

// isUnsaved says that something was not written.
func (s store) isUnsaved() bool { return s.soft != nil && s.soft.err != nil }

// soften lets writes fail until the function that it returns is called, which reports
// it.
func (s *session) soften() (harden func()) {
	if s.soft != nil {
		return func() {}
	}
	s.soft = &unsaved{}
	return func() {
		if err := s.soft.err; err != nil {
			s.note("%v; the state on disk is as before, and the next boot loads %s", err, s.bootOnDisk())
		}
		s.soft = nil
	}
}

// bootOnDisk is what the next boot loads, as the disk has it.
func (s *session) bootOnDisk() string {
	c, err := s.current()
	switch {
	case err != nil || c.Lost != "":
		return "the closed policy"
	}
	return generationText(c.Boot)
}

// UndurableError says that a generation is kept until the next boot alone, since that
// it was confirmed could not be written.
type UndurableError struct {
	Generation int
	Boot       string // what the next boot loads, "generation 7"
	Err        error
}

func (e *UndurableError) Error() string {
	return fmt.Sprintf("generation %d is kept, but its confirmation cannot be written: %v\n  the next boot loads %s", e.Generation, e.Err, e.Boot)
}

func (e *UndurableError) Unwrap() error { return e.Err }

// keptDir is where it is noted beside the kernel which trials are kept, by their tokens:
// memory that is gone with the next boot, and that no flush of rules reaches.
const keptDir = "/run/sluice"

func keptPath(p *Pending) string { return filepath.Join(keptDir, "kept-"+p.Token) }

// noteKept notes it there. The kernel has it anyway.
func noteKept(p *Pending) {
	if err := os.MkdirAll(keptDir, 0o755); err == nil {
		_ = os.WriteFile(keptPath(p), nil, 0o600)
	}
}

// forgetKept takes the note away when the disk has it. What stays otherwise is of a token
// that never comes again.
func forgetKept(p *Pending) {
	if p != nil && p.Token != "" {
		_ = os.Remove(keptPath(p))
	}
}

// isKept says whether a trial is kept though the disk did not take its confirmation. The
// trial may be nil, where the disk has it as over.
func (h *Host) isKept(ctx context.Context, p *Pending) (bool, error) {
	if p != nil && p.Token != "" && p.BootID == bootID() {
		if _, err := os.Stat(keptPath(p)); err == nil {
			return true, nil
		}
	}
	for _, b := range h.backends() {
		if _, confirmed, err := b.Mark(ctx); err != nil || confirmed {
			return confirmed, err
		}
	}
	return false, nil
}

// settleKept ends a trial that was confirmed when the disk did not take it. Where it
// takes it now, the generation boots from now on. That it waited may be written as
// over already: what counts is that the kernel has it as kept and that another boots.
func (s *session) settleKept(ctx context.Context) {
	n := s.cur.Running
	if p := s.cur.Pending; n == 0 || p == nil && s.cur.Boot == n || p != nil && p.Generation != n {
		return
	}
	p := s.cur.Pending
	if kept, err := s.isKept(ctx, p); err != nil || !kept {
		return
	}
	if g, err := s.generation(n); err == nil && g.Closed {
		return // never boots, whoever marked it
	}
	strict := *s
	strict.soft = nil
	err := strict.confirmRunning()
	s.cur.Pending = nil
	if err != nil {
		s.kept = &UndurableError{n, s.bootOnDisk(), err}
		return
	}
	forgetKept(p)
	s.keptNow = true
	s.note("the confirmation of generation %d is written now: it is loaded at boot", n)
}
