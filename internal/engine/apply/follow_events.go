package apply

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/system/host"
	"sluice/internal/system/kernel/clock"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/netns"
)

// Of changes that follow closely the first is applied at once and the rest together:
// a daemon that sets an interface up makes dozens.
const (
	settleTime = 50 * time.Millisecond // that nothing may change for
	settleMost = 250 * time.Millisecond
	// againFirst and againMost bound the pauses behind a sync that failed, each twice
	// the one before.
	againFirst = time.Second
	againMost  = 30 * time.Second
)

// Follow calls Sync whenever links, addresses, routes or name servers have changed, and
// Retime when the clock was set or the machine slept, until the context ends, and calls told with what was applied. What fails is noted and tried
// again; a socket that fails is opened again, since nothing else would see the next change.
func (h *Host) Follow(ctx context.Context, told func(*Synced)) error {
	if err := needRoot(); err != nil {
		return err
	}
	here, err := netns.Here()
	if err != nil {
		return err
	}
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default: // one that waits already is enough
		}
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		defer here.Close()
		for ctx.Err() == nil {
			if err := here.Do(func() error { return link.Watch(ctx, changed) }); err != nil {
				h.note("%v", err)
				wait(ctx, againFirst)
			}
		}
	})
	listening.Go(func() {
		for told := false; ctx.Err() == nil; told = true {
			if err := host.WatchResolvers(ctx, h.Namespace, changed); err != nil && !told {
				h.note("a change of name servers alone is not followed: %v", err)
			}
			wait(ctx, againMost)
		}
	})
	// The clock may have been set before anybody looked.
	var jumped atomic.Bool
	jumped.Store(true)
	listening.Go(func() {
		for told := false; ctx.Err() == nil; told = true {
			err := clock.Watch(ctx, func() { jumped.Store(true); changed() })
			if err != nil && !told {
				h.note("%v", err)
			}
			if ctx.Err() == nil {
				wait(ctx, againMost)
			}
		}
	})
	lost, ready, more := false, false, false
	for again := time.Duration(0); ctx.Err() == nil; {
		if again == 0 && !more {
			select {
			case <-ctx.Done():
				return nil
			case <-changes:
			}
		}
		var out *Synced
		var err error
		h.inTurn(func() {
			if jumped.Swap(false) {
				if err = h.Retime(ctx); err != nil {
					jumped.Store(true)
					return
				}
			}
			out, err = h.Sync(ctx)
		})
		if out == nil && err == nil {
			return nil
		}
		if !ready {
			// One that failed is tried again: a boot must not wait for it.
			ready = true
			if h.Ready != nil {
				if err := h.Ready(); err != nil {
					h.note("%v", err)
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			if out != nil && len(out.Moves) > 0 {
				told(out)
			}
			again = min(max(2*again, againFirst), againMost)
			h.note("%v\n  tried again in %s", err, again)
			wait(ctx, again)
			continue
		}
		if again = 0; err == nil {
			// That there is no default route is told once.
			if len(out.Moves) > 0 || out.Loaded != 0 || len(out.Lost) > 0 && !lost {
				told(out)
			}
			lost = len(out.Lost) > 0
		}
		more = settles(ctx, changes)
	}
	return nil
}

func (h *Host) inTurn(f func()) {
	if h.Turn != nil {
		h.Turn(f)
	} else {
		f()
	}
}

// settles waits until nothing has changed for a while, and says whether anything did.
func settles(ctx context.Context, changes <-chan struct{}) (changed bool) {
	for most := time.After(settleMost); ; changed = true {
		select {
		case <-changes:
			continue
		case <-time.After(settleTime):
		case <-most:
		case <-ctx.Done():
		}
		return changed
	}
}

func wait(ctx context.Context, d time.Duration) {
	timed, stop := context.WithTimeoutCause(ctx, d, errWaited)
	defer stop()
	<-timed.Done()
}

var errWaited = errors.New("waited")
