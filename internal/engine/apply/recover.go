package apply

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/language/bans"
)

// The record of what runs and boots is one file, and a disk may lose any file. That
// nothing was ever confirmed is believed only where the state directory has nothing
// of a change at all; where anything is left, the record is rebuilt from the
// generations, each of which says what happened to it, or the host is closed.

// ownNames are the files and folders that only a change makes. Beside them other
// commands keep what they downloaded, measured and computed.
var ownNames = []string{
	lockFile, nextFile, currentFile, currentFile + damagedSuffix, journalFile, journalFile + damagedSuffix, stepFile, generationsDir, blobsDir,
	commandsFile, readingFile, watcherLog, tunedFile, bans.File, bans.File + damagedSuffix, bans.PastFile,
}

const damagedSuffix = ".damaged"

// known says that the directory has anything of a state. What cannot be looked at is
// not taken for nothing.
func (s store) known() bool {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return slices.Contains(ownNames, e.Name()) })
}

// begin makes the record of a state that has nothing yet, before anything else of
// it: a state without a record is always one that lost it. Two commands may do this
// at a time, and one record stays.
func (s store) begin() error {
	if s.known() {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w", err)
	}
	beside := "." + currentFile + rand.Text()
	defer os.Remove(filepath.Join(s.dir, beside))
	if err := s.writeJSON(beside, &current{Format: format, Next: 1}); err != nil {
		return err
	}
	if err := os.Link(filepath.Join(s.dir, beside), filepath.Join(s.dir, currentFile)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the state: %w", err)
	}
	return syncDir(s.dir)
}

// recovered is the record rebuilt from the generations; cause is why it had to be.
// It says nothing about what runs: see adopt.
func (s store) recovered(cause error) *current {
	c := &current{Format: format, Next: 1, Unswept: true, cause: cause}
	lost := func(text string, args ...any) *current {
		c.Lost = fmt.Sprintf("%v, and %s", cause, fmt.Sprintf(text, args...))
		return c
	}
	numbers, err := s.numbers()
	if err != nil {
		return lost("the generations cannot be listed: %v", err)
	}
	var boot *Generation
	var came, went time.Time // the last events of either kind
	var unreadable error
	for _, n := range numbers {
		c.Next = max(c.Next, n+1)
		g, err := s.generation(n)
		if err != nil {
			unreadable = err
			continue
		}
		if !g.Closed && (boot == nil || !g.Confirmed.Before(boot.Confirmed)) {
			boot = g
		}
		for _, e := range g.Events {
			switch e.What {
			case applied, refreshed, restored:
				came = latest(came, e.Time)
			case replaced, expired, rolledBack, removed:
				went = latest(went, e.Time)
			}
		}
	}
	switch {
	case unreadable != nil:
		return lost("the confirmed policy may be the one that cannot be read: %v", unreadable)
	case boot == nil || boot.Confirmed.IsZero():
		return lost("no remaining generation was ever confirmed")
	case went.After(came):
		// What goes and what comes in its place have the same time.
		return lost("what came after the remaining generations is unknown")
	}
	c.Boot = boot.Number
	return c
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// whole says what of a record that was read cannot be.
func (c *current) whole() error {
	switch {
	case c.Next < 1, c.Boot < 0, c.Running < 0, c.Boot >= c.Next, c.Running >= c.Next:
		return errors.New("its generation numbers are invalid")
	case c.Pending != nil && (c.Pending.Generation < 1 || c.Pending.Generation >= c.Next || c.Pending.Previous < 0):
		return errors.New("its numbers of the pending generation are invalid")
	}
	return nil
}

// marked is the generation with a mark; nil where there is none.
func (s store) marked(mark string) *Generation {
	var n int
	if _, err := fmt.Sscanf(mark, backend.MarkPrefix+"%d_", &n); err != nil {
		return nil
	}
	if g, err := s.generation(n); err == nil && g.Mark == mark {
		return g
	}
	return nil
}

// adopt makes the record follow the kernel where no change is under way: a disk that
// took no more, or lost the record, kept what happened last from being written.
func (s *session) adopt(ctx context.Context) error {
	mark, err := s.mark(ctx)
	if err != nil {
		return err
	}
	if running, err := s.generation(s.cur.Running); mark == "" || err == nil && running.Mark == mark {
		return nil
	}
	g := s.marked(mark)
	if g == nil {
		return nil
	}
	s.cur.Running = g.Number
	s.followRunning()
	if n := len(g.Events); n > 0 {
		s.cur.Since = g.Events[n-1].Time
	}
	if p := s.cur.Pending; p == nil || p.Generation != g.Number {
		s.cur.Pending = nil
		if g.Trial != nil && g.Trial.BootID == bootID() {
			s.cur.Pending = g.Trial
		}
	}
	return nil
}

// tellRecovered says that the record was lost, and writes it again. What was damaged
// is kept beside it.
func (s *session) tellRecovered() {
	if s.cur.cause == nil {
		return
	}
	found := "no policy is loaded at boot until one is confirmed: the host is then closed except for ssh"
	if s.cur.Boot != 0 {
		found = fmt.Sprintf("it was recovered from the generations: generation %d is loaded at boot", s.cur.Boot)
	}
	s.note("the record of what runs was lost: %v; %s", s.cur.cause, found)
	path := filepath.Join(s.dir, currentFile)
	_ = os.Rename(path, path+damagedSuffix) // it may not be there at all
	if err := s.saveCurrent(s.cur); err != nil {
		s.note("%v", err)
	}
}
