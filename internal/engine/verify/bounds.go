package verify

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"sync"
	"time"

	"sluice/internal/base/bdd"
)

// Bounds is what a proof may take; zero members are not bounded.
type Bounds struct {
	Time   time.Duration
	Memory uint64 // bytes
}

// lookEvery is how often a proof's memory is looked at.
const lookEvery = 50 * time.Millisecond

// watch closes a channel when a proof has to end: at its bounds, or with the
// context. After done, why says which it was.
func (b Bounds) watch(ctx context.Context) (stop <-chan struct{}, done func(), why func() error) {
	out, over := make(chan struct{}), make(chan struct{})
	var cause error
	var running sync.WaitGroup
	began, before := time.Now(), heap()
	running.Go(func() {
		ticks := time.NewTicker(lookEvery)
		defer ticks.Stop()
		for {
			select {
			case <-over:
				return
			case <-ctx.Done():
				cause = context.Cause(ctx)
			case <-ticks.C:
				switch now := heap(); {
				case b.Time > 0 && time.Since(began) > b.Time:
					cause = fmt.Errorf("it takes longer than %s", b.Time)
				case b.Memory > 0 && now > before && now-before > b.Memory:
					cause = fmt.Errorf("it takes more than %d MiB of memory", b.Memory>>20)
				}
			}
			if cause != nil {
				close(out)
				return
			}
		}
	})
	done = sync.OnceFunc(func() { close(over); running.Wait() })
	return out, done, func() error { return cause }
}

// within runs a part of a proof within bounds.
func (b Bounds) within(ctx context.Context, f func(stop <-chan struct{})) error {
	stop, done, why := b.watch(ctx)
	defer done()
	err := guarded(func() { f(stop) })
	done()
	if cause := why(); cause != nil && errors.Is(err, bdd.ErrStopped) {
		return cause
	}
	return err
}

// heap is how many bytes the objects of this process take.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
