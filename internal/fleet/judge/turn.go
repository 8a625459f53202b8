package judge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Longest is how long a question is judged for, with what it waits until others are.
const Longest = time.Minute

// BusyError says that others are judged for, or that it takes too long.
type BusyError struct{ judged bool }

func (e *BusyError) Error() string {
	if e.judged {
		return fmt.Sprintf("it takes more than %s to find: ask about fewer hosts, or a shorter policy", Longest)
	}
	return "other questions about policies are answered first; ask again"
}

// Turn waits until a caller may be judged for, and leave says that it is done. The context ends
// after Longest, by a *BusyError.
func (j *Judge) Turn(ctx context.Context, caller string) (turn context.Context, leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Longest, &BusyError{judged: true})
	end, err := j.turns.Take(ctx, caller)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = &BusyError{}
		}
		cancel()
		return nil, nil, err
	}
	return ctx, func() { cancel(); end() }, nil
}
