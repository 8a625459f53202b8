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

// callers are who is judged for, or waits for it: each once.
type callers struct {
	mutex sync.Mutex
	of    map[string]chan struct{}
}

// Turn waits until a caller may be judged for, behind what they asked before, and leave says
// that it is done. The context ends after Longest, by a *BusyError.
func (j *Judge) Turn(ctx context.Context, caller string) (turn context.Context, leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Longest, &BusyError{judged: true})
	late := func() error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &BusyError{}
		}
		return context.Cause(ctx)
	}
	mine := make(chan struct{})
	for {
		before := j.callers.begin(caller, mine)
		if before == nil {
			break
		}
		select {
		case <-before:
		case <-ctx.Done():
			cancel()
			return nil, nil, late()
		}
	}
	end := func() {
		cancel()
		j.callers.end(caller)
		close(mine)
	}
	select {
	case j.slot <- struct{}{}:
		return ctx, func() { <-j.slot; end() }, nil
	case <-ctx.Done():
		err := late()
		end()
		return nil, nil, err
	}
}

// begin has a caller be judged for until mine is closed, or gives what was begun before.
func (c *callers) begin(caller string, mine chan struct{}) (before <-chan struct{}) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if is, busy := c.of[caller]; busy {
		return is
	}
	if c.of == nil {
		c.of = map[string]chan struct{}{}
	}
	c.of[caller] = mine
	return nil
}

func (c *callers) end(caller string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.of, caller)
}
