package judge

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// Turns are of callers, one of whom at a time does what takes long.
type Turns struct {
	slot  chan struct{}
	mutex sync.Mutex
	of    map[string]chan struct{} // who does it, or waits for it: each once
}

// NewTurns are those of nobody yet.
func NewTurns() *Turns { return &Turns{slot: make(chan struct{}, 1), of: map[string]chan struct{}{}} }

// Take waits for a caller's turn, behind what they asked before, and leave ends it. The error is
// why the context has ended.
func (t *Turns) Take(ctx context.Context, caller string) (leave func(), err error) {
	mine := make(chan struct{})
	for {
		before := t.begin(caller, mine)
		if before == nil {
			break
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	end := func() {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		delete(t.of, caller)
		close(mine)
	}
	select {
	case t.slot <- struct{}{}:
		return func() { <-t.slot; end() }, nil
	case <-ctx.Done():
		end()
		return nil, context.Cause(ctx)
	}
}

// begin has a caller take their turn until mine is closed, or gives what was begun before.
func (t *Turns) begin(caller string, mine chan struct{}) (before <-chan struct{}) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if is, busy := t.of[caller]; busy {
		return is
	}
	t.of[caller] = mine
	return nil
}
