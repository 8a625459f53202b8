package apply

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// boottime is CLOCK_BOOTTIME in nanoseconds: it goes on while the machine
// sleeps and does not jump when the wall clock is set.
func boottime() int64 {
	var ts unix.Timespec
	// The clock exists since Linux 2.6.39, so this cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}

// newPending decides what returns. Where another generation still waits, what
// was before that one returns, and not a policy that nobody ever confirmed.
func (s *session) newPending(j *journal, wait time.Duration) (*Pending, error) {
	previous := s.cur.Running
	if s.cur.Pending != nil {
		previous = s.cur.Pending.Previous
	}
	if previous == 0 && j.From.Mark != "" && s.cur.Pending == nil {
		return nil, remedied(ApplyUnconfirmedOrRemove, fmt.Errorf("a policy runs that this state directory does not know (%s), so it could not return", j.From.Mark))
	}
	if _, _, err := s.artifact(previous); err != nil {
		return nil, remedied(ApplyUnconfirmed, fmt.Errorf("what runs now could not return: %w", err))
	}
	var token [8]byte
	_, _ = rand.Read(token[:]) // never fails, says its documentation
	p := &Pending{
		Generation: j.To.Generation, Previous: previous,
		Token: hex.EncodeToString(token[:]), BootID: bootID(),
	}
	if s.cur.Pending != nil {
		p.Grace = s.cur.Pending.Grace
	}
	p.start(wait)
	return p, nil
}

// start makes the time run from now.
func (p *Pending) start(wait time.Duration) {
	p.Until = time.Now().Add(wait).Truncate(time.Millisecond)
	p.Deadline = boottime() + int64(wait)
}

// Left is the time until the previous state returns; 0 when it is over.
func (p *Pending) Left() time.Duration {
	return max(0, time.Duration(p.Deadline-boottime()))
}

// over is what happened to a generation that nobody confirmed in time.
func (p *Pending) over() string {
	return fmt.Sprintf("generation %d was not confirmed in time: %s runs again", p.Generation, generationText(p.Previous))
}

// LateError says that a confirmation came after the end of the time.
type LateError struct {
	Pending *Pending
	Err     error // why what was before does not run yet; nil: it does
	Going   bool  // it is being restored at this moment
}

func (e *LateError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("generation %d was not confirmed in time, and going back to %s fails: %v", e.Pending.Generation, generationText(e.Pending.Previous), e.Err)
	}
	if e.Going {
		return fmt.Sprintf("too late: generation %d was not confirmed in time: going back to %s", e.Pending.Generation, generationText(e.Pending.Previous))
	}
	return "too late: " + e.Pending.over()
}

func (e *LateError) Unwrap() error { return e.Err }

// settlePending does what the watcher should have done: it goes back where the
// time is over, and starts a watcher again where one is gone. Whatever fails is
// told, and does not keep the command from its own work.
func (s *session) settlePending(ctx context.Context) {
	p := s.cur.Pending
	if p == nil {
		return
	}
	if p.Left() == 0 {
		s.shout("generation %d was not confirmed in time: going back to %s", p.Generation, generationText(p.Previous))
		if s.lateErr = s.takeBack(ctx, p, expired); s.lateErr != nil {
			s.note("going back to %s fails: %v", generationText(p.Previous), s.lateErr)
			return
		}
		s.late = p
		disarm(p)
		return
	}
	armed := *p
	if s.watched(&armed) {
		return
	}
	if err := s.armAgain(&armed); err != nil {
		s.note("the watcher of generation %d is gone, and another cannot be started: %v; the first command after the time is up rolls back", p.Generation, err)
	}
	s.cur.Pending = &armed
	if err := s.saveCurrent(s.cur); err != nil {
		s.note("%v", err)
	}
}

// errNothingPending is for a confirm without anything to confirm.
var errNothingPending = errors.New("no policy waits for confirmation")

// pendingOf finds what the watcher with this token watches, in settings that were
// tuned, in a change under way or in the state; nil when there is nothing left to watch. The journal is
// read first: a change writes the state before it ends the journal.
func (s store) pendingOf(token string) (*Pending, error) {
	if k, err := s.tuning(); err == nil && k.Pending != nil && k.Pending.Token == token {
		return k.Pending, nil
	}
	j, journalErr := s.journal()
	if journalErr == nil && j != nil && j.Pending != nil && j.Pending.Token == token {
		return j.Pending, nil
	}
	cur, err := s.current()
	if err != nil {
		return nil, err
	}
	if cur.Pending != nil && cur.Pending.Token == token {
		return cur.Pending, nil
	}
	if cur.cause != nil || journalErr != nil {
		// What said so is lost.
		numbers, err := s.numbers()
		for _, n := range numbers {
			if g, err := s.generation(n); err == nil && g.Trial != nil && g.Trial.Token == token {
				return g.Trial, nil
			}
		}
		return nil, errors.Join(journalErr, err)
	}
	return nil, journalErr
}
