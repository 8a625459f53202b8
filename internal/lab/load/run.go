package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	defaultFor     = 10 * time.Second
	defaultTimeout = 10 * time.Second
	defaultEvery   = time.Second
	// mostIntervals of one run: each takes some ten kilobytes.
	mostIntervals = 50_000
	// pause of a connection of a closed loop that could not be opened.
	pause = 100 * time.Millisecond
	// idleTime is after how long without a request a connection that turns out to
	// be closed was closed for that, and the request is sent again on another.
	idleTime = time.Second
	// longestRamp is the time over which connections begin.
	longestRamp = 500 * time.Millisecond
	mostRate    = 10_000_000
)

// fill checks the options and fills in what was left out.
func (o *Options) fill() error {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.For, defaultFor)
	set(&o.Timeout, defaultTimeout)
	set(&o.Every, defaultEvery)
	if o.Connections == 0 {
		o.Connections = 1
	}
	switch {
	case o.Connections < 0:
		return fmt.Errorf("%d is no number of connections", o.Connections)
	case o.For < 0 || o.Timeout < 0 || o.Every < 0:
		return errors.New("a time below zero")
	case o.Every < time.Millisecond:
		return fmt.Errorf("an interval of %s is too short: a millisecond is the least", o.Every)
	case o.For/o.Every >= mostIntervals:
		return fmt.Errorf("%s in intervals of %s are more than %d", o.For, o.Every, mostIntervals)
	case math.IsNaN(o.Rate) || o.Rate < 0 || o.Rate > mostRate:
		return fmt.Errorf("%v is no rate: 0 (each connection sends when it is free) to %d requests per second", o.Rate, mostRate)
	case o.Rate > 0 && o.Rate*o.For.Seconds() < 1:
		return fmt.Errorf("not one request at %v per second in %s", o.Rate, o.For)
	case o.Dialer != nil && len(o.Bind) > 0:
		return errors.New("local addresses belong to a dialer of one's own")
	}
	return nil
}

// Run asks until the time is up or the context ends, whichever is first; both
// give a result. An error means that nothing was measured: the options make no sense,
// the host has no address, or this process may not open as many connections.
func Run(ctx context.Context, o Options) (*Result, error) {
	return start(ctx, o, clock{prepare: ownThread, sleep: kernelSleep})
}

// clock is how the pacer of an open loop sleeps.
type clock struct {
	prepare func()
	sleep   func(time.Duration)
}

// run is a load under way.
type run struct {
	options  *Options
	target   *target
	address  netip.AddrPort
	dialer   *dialer
	recorder *recorder
	schedule *schedule // nil in a closed loop
	began    time.Time
	workers  []worker
	turns    atomic.Int64 // connections opened, for the local address
	open     atomic.Int64
	started  atomic.Uint64 // requests, where their number ends the load
	cut      atomic.Bool   // interrupted
	stopped  chan struct{}
}

func start(ctx context.Context, o Options, c clock) (*Result, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	t, err := newTarget(&o)
	if err != nil {
		return nil, err
	}
	if err := raiseFiles(o.Connections); err != nil {
		return nil, err
	}
	if err := t.resolve(ctx); err != nil {
		return nil, err
	}
	r := &run{options: &o, target: t, dialer: newDialer(&o), stopped: make(chan struct{})}
	r.address = t.choose(ctx, r.dialer.try)
	if err := o.checkBind(r.address.Addr()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.recorder = newRecorder(&o, min(runtime.GOMAXPROCS(0), o.Connections, 8))
	return r.do(ctx, c), nil
}

func (r *run) since() time.Duration { return time.Since(r.began) }

// do runs all parts to their end.
func (r *run) do(ctx context.Context, c clock) *Result {
	spent := processorTime()
	r.began = time.Now()
	if r.options.Rate > 0 {
		r.schedule = newSchedule(r.options, r.since)
	}
	timed, cancel := context.WithTimeout(ctx, r.options.For)
	defer cancel()

	var helpers, workers sync.WaitGroup
	if r.schedule != nil {
		helpers.Go(func() {
			c.prepare()
			r.schedule.pace(timed, c.sleep)
		})
	}
	counts := newCourse(r)
	helpers.Go(func() { counts.follow(timed) })

	r.workers = make([]worker, r.options.Connections)
	for i := range r.workers {
		w := &r.workers[i]
		w.run, w.number, w.wake = r, i, make(chan struct{}, 1)
		workers.Go(func() { w.work(ctx) })
	}
	if r.options.Requests > 0 {
		helpers.Go(func() {
			workers.Wait()
			cancel()
		})
	}
	<-timed.Done()
	took := min(r.since(), r.options.For)
	stillOpen := int(r.open.Load())
	close(r.stopped)
	var unsent []time.Duration
	if r.schedule != nil {
		// What was due at the end counts as wanted, whether the pacer was there or not.
		if ctx.Err() == nil {
			r.schedule.release()
		}
		unsent = r.schedule.stop()
	}
	unfollow := context.AfterFunc(ctx, r.interrupt)
	workers.Wait()
	unfollow()
	helpers.Wait()
	result := counts.result(took, unsent, stillOpen)
	result.Interrupted = ctx.Err() != nil && took < r.options.For
	result.Processor = processorTime() - spent
	return result
}

// interrupt ends what is under way.
func (r *run) interrupt() {
	r.cut.Store(true)
	for i := range r.workers {
		if conn := r.workers[i].live.Load(); conn != nil {
			_ = (*conn).SetDeadline(time.Unix(1, 0))
		}
	}
}

// ramp is when a connection begins: not all in one moment, which would overflow
// the server's queue of connections. Where a schedule opens them, it is that which
// spreads them.
func (r *run) ramp(number int) time.Duration {
	if r.schedule != nil && r.options.NewConnections {
		return 0
	}
	over := min(r.options.For/20, longestRamp)
	return over * time.Duration(number) / time.Duration(r.options.Connections)
}

// processorTime is what this process has spent.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
