// Package turns lets callers take turns at what one at a time does, so that who asks for much waits
// behind themselves. Callers: the agent, the judge of a fleet and its controller.
package turns

import (
	"context"
	"sync"
)

// Turns are of callers, one of whom at a time does what takes long.
type Turns struct {
	slot  chan struct{}
	mutex sync.Mutex
	of    map[string]chan struct{} // who does it, or waits for it: each once
}

// New are those of nobody yet.
func New() *Turns { return &Turns{slot: make(chan struct{}, 1), of: map[string]chan struct{}{}} }

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
