package words

import (
	"errors"
	"io/fs"
	"strings"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// DefaultPolicy is the policy where no file is named.
const DefaultPolicy = "/etc/sluice/policy.yaml"

// Ended is what a command says that ended with an error, and its exit status: 1 where
// that is something found or refused on purpose, and no failure.
func Ended(err error, here string) (text string, status int) {
	var (
		told    interface{ Ended() (string, int) } // by another process, in these words
		failing *engine.UnmetError
		guard   *engine.GuardError
	)
	switch {
	case errors.As(err, &told):
		return told.Ended()
	case errors.As(err, &failing):
		return unmet(failing), 1
	case errors.As(err, &guard):
		return unguarded(guard), 1
	}
	text = Hinted(err, here)
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(text, DefaultPolicy+": ") {
		text += "\nhint: sluice init > " + DefaultPolicy + " writes a first one; or name another FILE"
	}
	switch {
	case refused(err):
		return "refused: " + text, 1
	case found(err):
		return text, 1
	}
	return text, 2
}

func refused(err error) bool {
	var lock *apply.LockOutError
	var memory *apply.MemoryError
	var most *apply.TuningMemoryError
	var shrunk *apply.ShrinkError
	var policed *apply.SetByPolicyError
	var managed *apply.ManagedError
	var forbidden *engine.ForbiddenError
	return errors.As(err, &lock) || errors.As(err, &memory) || errors.As(err, &most) || errors.As(err, &shrunk) || errors.As(err, &policed) || errors.As(err, &managed) || errors.As(err, &forbidden)
}

func found(err error) bool {
	var (
		known      interface{ Found() }
		undurable  *apply.UndurableError
		unreadable *apply.UnreadableError
		left       *apply.LeftError
		closed     *apply.ClosedError
	)
	_, stays := err.(*apply.DriftError) //nolint:errorlint // a change that was undone for it is a failure
	return stays || errors.As(err, &known) || errors.As(err, &undurable) || errors.As(err, &unreadable) ||
		errors.As(err, &left) || errors.As(err, &closed) && closed.Err == nil || apply.NothingPending(err)
}
