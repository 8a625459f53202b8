package words

import (
	"errors"
	"fmt"
	"testing"

	"sluice/internal/engine/apply"
)

// What was found or is refused on purpose ends with status 1, also where it is wrapped;
// a change that was undone because the kernel differed is a failure.
func TestEnded(t *testing.T) {
	cause := errors.New("x")
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"any":         {cause, 2},
		"memory":      {fmt.Errorf("y: %w", &apply.MemoryError{}), 1},
		"undurable":   {&apply.UndurableError{Err: cause}, 1},
		"unreadable":  {&apply.UnreadableError{Cause: cause}, 1},
		"left":        {&apply.LeftError{Cause: cause}, 1},
		"closed":      {&apply.ClosedError{Cause: cause}, 1},
		"not closed":  {&apply.ClosedError{Cause: cause, Err: cause}, 2},
		"drift":       {&apply.DriftError{}, 1},
		"drift, back": {fmt.Errorf("%w\n  nothing changed", &apply.DriftError{}), 2},
		"late":        {&apply.RemedyError{Err: &apply.LateError{Pending: &apply.Pending{}}, Remedy: apply.ApplyAgain}, 1},
	} {
		if _, status := Ended(c.err, ""); status != c.status {
			t.Errorf("%s: %d, want %d", name, status, c.status)
		}
	}
	if text, _ := Ended(&apply.MemoryError{}, ""); text != "refused: "+Hinted(&apply.MemoryError{}, "") {
		t.Errorf("%q", text)
	}
}
