package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/engine/verify"
)

// UnreadableError says that the generation that should run cannot be read from the
// state, and what the kernel holds meanwhile.
type UnreadableError struct {
	Generation int
	Cause      error
	Holds      Condition // Running: surely its rules; Foreign: some of Sluice; Nothing
	Boots      string    // what the next boot does
	Left       bool      // a restore left the rules alone
}

func (e *UnreadableError) Error() string { return e.Text("a restore") }

// Text is the error with the words that the caller has for a restore.
func (e *UnreadableError) Text(restore string) string {
	text := fmt.Sprintf("generation %d, which should run, cannot be read: %v", e.Generation, withoutHint(e.Cause))
	switch {
	case e.Left:
		text += "\n  its rules run as they were loaded, and are left as they are"
	case e.Holds == Running:
		text += "\n  its rules run as they were loaded"
	case e.Holds == Nothing:
		text += "\n  no rules of Sluice are loaded"
	default:
		text += "\n  rules of Sluice are loaded that may no longer be its own: " + restore + " would close the host except for ssh"
	}
	return text + "\n  the next boot " + e.Boots
}

func (e *UnreadableError) Unwrap() error { return e.Cause }

// withoutHint is an error that another way out is given for.
func withoutHint(err error) error {
	var missing *MissingError
	if errors.As(err, &missing) {
		return errors.New("it is no longer in the state directory")
	}
	return err
}

// unreadable is what a reader ends with where the running generation cannot be read.
func (s *session) unreadable(ctx context.Context, have backend.State, cause error) *UnreadableError {
	e := &UnreadableError{Generation: s.cur.Running, Cause: cause, Holds: Foreign, Boots: "loads " + generationText(s.cur.Boot)}
	if _, _, err := s.artifact(s.cur.Boot); err != nil {
		e.Boots = "closes the host except for ssh"
	}
	switch {
	case have != nil && have.Empty():
		e.Holds = Nothing
	case s.surelyRuns(ctx, s.cur.Running):
		e.Holds = Running
	}
	return e
}

// stands is what a restore of generation n, which cannot be read, ends with where its
// rules run: a host whose rules are right is not closed. Nil where they may be others.
func (s *session) stands(ctx context.Context, n int, cause error) error {
	if s.cur.Pending != nil || s.cur.Running != n || !s.surelyRuns(ctx, n) {
		return nil
	}
	e := s.unreadable(ctx, nil, cause)
	e.Left = true
	logCritical(s.words(e))
	return e
}

// surelyRuns says whether the kernel holds the rules of a generation whose artifact
// cannot be read: its mark is there, and either nobody made a transaction since a
// reading saw the rules, or what they mean is proved to be what the policy says.
func (s *session) surelyRuns(ctx context.Context, n int) bool {
	mark, err := s.mark(ctx)
	if err != nil || mark == "" {
		return false
	}
	var w reading
	if s.readJSON(readingFile, &w) == nil && w.Generation == n && w.Mark == mark && s.untouched(&w.Ruleset) {
		return true
	}
	g, err := s.generation(n)
	if err != nil || g.Mark != mark {
		return false
	}
	lifter, can := s.Backend.(backend.Lifter)
	if !can {
		return false
	}
	expected, err := s.expected(g)
	if err != nil {
		return false
	}
	if g.Fitted != nil {
		expected = without(expected, g.Fitted.Missing)
	}
	have, err := lifter.ReadWhole(ctx, nil)
	if err != nil {
		return false
	}
	if c, err := s.commands(g); err == nil && c != nil {
		s.bans, s.bansKnown = c.BanStore, true
	}
	proof, err := s.proof(ctx, lifter, expected, have, verify.Bounds{Time: longestProof, Memory: FreeMemory() / proofMemory})
	return err == nil && proof.Proved && graceLeft(have) == 0
}

// intact says whether all of a generation can be read, so that a boot loads it.
func (s store) intact(g *Generation) bool {
	return !slices.ContainsFunc(g.blobs(), func(id string) bool {
		_, err := s.blob(id)
		return err != nil
	})
}

// generationText is how messages speak of a generation by its number, 0 being none.
func generationText(n int) string {
	if n == 0 {
		return "no policy"
	}
	return fmt.Sprintf("generation %d", n)
}
