package agent

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"sluice/internal/system/kernel/netns"
)

// space is a network namespace, and who does all that changes its firewall.
type space struct {
	at   *netns.Namespace
	work chan func()
}

func newSpace(at *netns.Namespace) *space { return &space{at: at, work: make(chan func())} }

// quietTime is how long nothing is asked before the memory is given back that work took.
const quietTime = 10 * time.Second

// run works, on a thread inside of the namespace, until nobody asks any more.
func (s *space) run(ended <-chan struct{}) error {
	return s.at.Do(func() error {
		quiet := time.NewTimer(quietTime)
		defer quiet.Stop()
		for {
			select {
			case f := <-s.work:
				f()
				quiet.Reset(quietTime)
			case <-quiet.C:
				debug.FreeOSMemory()
			case <-ended:
				return nil
			}
		}
	})
}

// errWaited says that other work was not over in time.
var errWaited = errors.New("waited")

// do has f done, and waits for the end of it once it has begun. The error is that of the
// context, which ended before.
func (s *space) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case s.work <- func() { defer close(done); f() }:
		<-done
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// within is do for who waits so long at most.
func (s *space) within(ctx context.Context, most time.Duration, f func()) error {
	ctx, stop := context.WithTimeoutCause(ctx, most, errWaited)
	defer stop()
	return s.do(ctx, f)
}
