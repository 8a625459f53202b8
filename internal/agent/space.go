package agent

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/base/turns"

	"sluice/internal/agent/api"
	"sluice/internal/agent/fleet"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/netns"
)

// space is a network namespace that is served, and who does all that changes its firewall.
// It keeps nothing open in there once its context has ended.
type space struct {
	*Site
	own        bool // the agent's, and none of Agent.Namespaces
	at         *netns.Namespace
	ctx        context.Context //nolint:containedctx // it is that of the namespace: requests end with it
	end        context.CancelCauseFunc
	work       chan func()
	bans       chan *toBan
	keeping    chan func(keeper) // what the keeper of bans does besides
	meter      *engine.Meter
	samples    samples
	look       chan func()                      // work, with all that is kept of bans noted before
	log        atomic.Pointer[keptLog]          // nil: nothing is kept
	drops      atomic.Pointer[engine.DropWatch] // nil: nothing counts what the kernel drops
	inFleet    atomic.Pointer[fleet.Member]     // nil: it is of no fleet
	all        *spaces                          // of which it is one
	differs    atomic.Pointer[string]           // how the kernel differs from what runs; nil: it does not
	readLocked *turns.Turns                     // held by one of readsLocked, and for a while after it
	keep       func(*apply.Host) keeper         // tests put another there
}

func newSpace(ctx context.Context, site *Site, at *netns.Namespace) *space {
	s := &space{Site: site, at: at, work: make(chan func()), bans: make(chan *toBan), keeping: make(chan func(keeper)), look: make(chan func()), readLocked: turns.New(), keep: func(h *apply.Host) keeper { return h.Keep() }}
	s.ctx, s.end = context.WithCancelCause(ctx)
	s.meter = s.newMeter()
	s.samples.sampler.Meter = s.meter
	return s
}

// own is how callers name the agent's own namespace.
const own = "-"

// name is how callers name it.
func (s *Site) name() string { return cmp.Or(s.Host.Namespace, own) }

// live does what is done in a namespace until it ends. Ready is called when what was there
// at the beginning is applied, and due is what is done there from time to time.
func (s *space) live(ready func() error, due func(), drops *engine.DropWatch) {
	var parts sync.WaitGroup
	part := func(f func() error) {
		parts.Go(func() {
			if err := f(); err != nil {
				s.end(err)
			}
		})
	}
	part(s.run)
	part(func() error { return s.follow(ready) })
	parts.Go(due)
	part(s.watch)
	parts.Go(s.keepLog)
	parts.Go(s.keepSamples)
	if s.own {
		parts.Go(s.followFleet)
		parts.Go(s.tellFindings)
	}
	parts.Go(func() { s.watchDrops(drops) })
	parts.Wait()
}

func (s *space) follow(ready func() error) error {
	h := *s.Host.Host
	h.Turn = func(f func()) { _ = s.do(s.ctx, f); quieten() }
	h.Ready = ready
	h.Restorer = s.restorer(h.By, nil, func(l api.Line) {
		if text := cmp.Or(l.Note, l.Warning, l.Shout); text != "" && h.Note != nil {
			h.Note(text)
		}
	})
	return s.at.Do(func() error { return h.Follow(s.ctx, s.Told) })
}

// quietTime is how long nothing is done before the memory is given back that work took.
const quietTime = 10 * time.Second

var quiet = time.AfterFunc(quietTime, debug.FreeOSMemory)

// quieten is to be called behind work.
func quieten() { quiet.Reset(quietTime) }

// run works, on a thread inside of the namespace.
func (s *space) run() error {
	return s.at.Do(func() error {
		k := kept{space: s}
		defer k.close()
		for {
			select {
			case f := <-s.work:
				f()
			case f := <-s.look:
				k.rest()
				f()
			case b := <-s.bans:
				k.ban(b)
			case f := <-s.keeping:
				k.does(f)
			case <-k.resting:
				k.rest()
			case <-s.ctx.Done():
				return nil
			}
		}
	})
}

// errWaited says that other work was not over in time.
var errWaited = errors.New("waited")

// do has f done, and waits for the end of it once it has begun. The error is that of a
// context which ended before.
func (s *space) do(ctx context.Context, f func()) error { return s.doBy(ctx, s.work, f) }

func (s *space) doBy(ctx context.Context, work chan func(), f func()) error {
	done := make(chan struct{})
	select {
	case work <- func() { defer close(done); f() }:
		<-done
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}
