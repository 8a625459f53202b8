package judge

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"time"
)

// Longest is how long a question is judged for, with what it waits until others are.
const Longest = time.Minute

// What is judged is in the controller's process: it ends where that has grown by more than
// mostGrowth, in bytes that live in its heap, since it began, looked at each growthEvery.
const (
	mostGrowth  = 1 << 30
	growthEvery = 50 * time.Millisecond
)

// BusyError says that others are judged for, or that it takes too long, or too much memory.
type BusyError struct{ judged, large bool }

func (e *BusyError) Error() string {
	if e.large {
		return fmt.Sprintf("it needs more than %d MB of memory: ask about fewer hosts, or a shorter policy", mostGrowth>>20)
	}
	if e.judged {
		return fmt.Sprintf("it takes more than %s: ask about fewer hosts, or a shorter policy", Longest)
	}
	return "other questions about policies are answered first; ask again"
}

// Turn waits until a caller may be judged for, and leave says that it is done. The context ends
// after Longest, or where it takes too much memory, by a *BusyError.
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
	turn, stop := context.WithCancelCause(ctx)
	go watchGrowth(turn, j.growth, stop)
	return turn, func() { stop(nil); cancel(); end() }, nil
}

// watchGrowth stops a turn where the heap has grown by so many bytes since.
func watchGrowth(turn context.Context, most uint64, stop context.CancelCauseFunc) {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	began := heap[0].Value.Uint64()
	for every := time.NewTicker(growthEvery); ; {
		select {
		case <-turn.Done():
			every.Stop()
			return
		case <-every.C:
			if metrics.Read(heap); heap[0].Value.Uint64() > began+most {
				stop(&BusyError{large: true})
			}
		}
	}
}
