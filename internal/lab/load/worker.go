package load

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// worker is one connection, or those that follow one another in its place.
type worker struct {
	connection
	run    *run
	number int
	wake   chan struct{}
	live   atomic.Pointer[net.Conn] // to be ended by an interruption
	last   time.Duration            // when the last response on this connection ended
}

// never is when a new connection's last response ended.
const never time.Duration = -1

// errCut ends what is under way when the load is interrupted.
var errCut = errors.New("interrupted")

func (w *worker) work(ctx context.Context) {
	defer w.leave()
	if !w.sleep(w.run.ramp(w.number)) {
		return
	}
	if w.run.options.NewConnections {
		w.eachAnew(ctx)
	} else {
		w.keptAlive(ctx)
	}
}

// sleep returns false when the load ended meanwhile.
func (w *worker) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.run.stopped:
		return false
	}
}

// next waits for the next request to start. In an open loop that is when the
// schedule wants it, in a closed one now.
func (w *worker) next() (intended time.Duration, ok bool) {
	r := w.run
	now := r.since()
	if now >= r.options.For || r.cut.Load() {
		return 0, false
	}
	select {
	case <-r.stopped:
		return 0, false
	default:
	}
	if !r.another() {
		return 0, false
	}
	if r.schedule == nil {
		return now, true
	}
	intended, woken, ok := r.schedule.take(w.wake)
	if woken && ok {
		now = r.since()
		r.recorder.at(w.shard(), r.options.interval(now), func(c *cell) { record(c.lateness, now-intended) })
	}
	return intended, ok
}

func (w *worker) shard() int { return w.number % len(w.run.recorder.shards) }

// another takes one from the number of requests, where that is bounded. A schedule
// is bounded itself.
func (r *run) another() bool {
	most := r.options.Requests
	return most == 0 || r.schedule != nil || r.started.Add(1) <= most
}

// eachAnew makes a connection for each request. It is a part of it.
func (w *worker) eachAnew(ctx context.Context) {
	for {
		intended, ok := w.next()
		if !ok {
			return
		}
		began := w.run.since()
		at, err := w.open(ctx)
		if err != nil {
			w.fail(err, at, intended, began)
			if !w.rest(at) {
				return
			}
			continue
		}
		if res, ok := w.request(ctx, intended, began); ok && res.close {
			w.awaitClose()
		}
		w.drop()
	}
}

// keptAlive has one connection as long as the server and errors let it. Opening
// it is not part of a request in a closed loop; in an open one what it delays
// counts from the intended start as all else does.
func (w *worker) keptAlive(ctx context.Context) {
	for first := true; ; first = false {
		began := w.run.since()
		if w.conn == nil && (w.run.schedule == nil || first) {
			if w.over() {
				return
			}
			if at, err := w.open(ctx); err != nil {
				w.fail(err, at, began, began)
				if !w.run.another() || !w.rest(at) {
					return
				}
				continue
			}
		}
		intended, ok := w.next()
		if !ok {
			return
		}
		if w.conn == nil {
			began = w.run.since()
			if at, err := w.open(ctx); err != nil {
				w.fail(err, at, intended, began)
				continue
			}
		}
		began = w.run.since()
		if w.run.schedule == nil {
			intended = began
		}
		if res, ok := w.request(ctx, intended, began); !ok || res.close {
			w.drop()
		}
	}
}

// over says that no request is to start any more.
func (w *worker) over() bool {
	r := w.run
	most := r.options.Requests
	return r.since() >= r.options.For || r.cut.Load() || most > 0 && r.schedule == nil && r.started.Load() >= most
}

// rest pauses a connection of a closed loop that could not be opened, which
// would try again at once else, thousands of times a second.
func (w *worker) rest(at stage) bool {
	return w.run.schedule != nil || at == asking || w.sleep(pause)
}

// open makes a connection, with TLS where the URL wants it.
func (w *worker) open(ctx context.Context) (at stage, err error) {
	r := w.run
	if r.cut.Load() {
		return connecting, errCut
	}
	began := r.since()
	limited, cancel := context.WithTimeout(ctx, r.options.Timeout)
	conn, err := r.dialer.dial(limited, r.address, int(r.turns.Add(1)-1))
	cancel()
	if err != nil {
		if r.cut.Load() || ctx.Err() != nil {
			err = errCut
		}
		return connecting, err
	}
	r.open.Add(1)
	w.use(conn)
	w.last = never
	w.live.Store(&conn)
	connected := r.since()
	var shaken time.Duration
	if r.target.tls != nil {
		if err := w.deadline(); err != nil {
			w.drop()
			return shakingHands, err
		}
		secure, err := shakeHands(conn, r.target.tls)
		if err != nil {
			w.drop()
			return shakingHands, w.cutOr(err)
		}
		w.use(secure)
		shaken = r.since()
	}
	r.recorder.at(w.shard(), r.options.interval(max(connected, shaken)), func(c *cell) {
		record(c.connect, connected-began)
		if shaken > 0 {
			record(c.shake, shaken-connected)
		}
	})
	return connecting, nil
}

// deadline sets the end of what is done with the connection next.
func (w *worker) deadline() error {
	if err := w.conn.SetDeadline(time.Now().Add(w.run.options.Timeout)); err != nil {
		return err
	}
	// An interruption sets its own; it came before this one or finds this one.
	if w.run.cut.Load() {
		return errCut
	}
	return nil
}

func (w *worker) cutOr(err error) error {
	if err != nil && w.run.cut.Load() {
		return errCut
	}
	return err
}

// drop closes the connection, if there is one.
func (w *worker) drop() {
	if w.conn == nil {
		return
	}
	w.live.Store(nil)
	w.close()
	w.run.open.Add(-1)
}

// leave closes the connection at the end. It counts as open then: the last
// interval has those that were there when its time was up.
func (w *worker) leave() {
	w.live.Store(nil)
	w.close()
}

// request asks once and records what came of it. The latency of an open loop, and
// of a new connection, counts from began or before.
func (w *worker) request(ctx context.Context, intended, began time.Duration) (res response, ok bool) {
	idle := w.last != never && w.run.since()-w.last >= idleTime
	err := w.deadline()
	if err == nil {
		res, err = w.ask(w.run.target)
	}
	if k := w.cutOr(err); k != nil && idle && k != errCut && w.received == 0 && kindOf(k, asking) != Timeout { //nolint:errorlint // not wrapped
		// The server closed it for being idle, which is not an error of anybody.
		w.drop()
		if at, err := w.open(ctx); err != nil {
			w.fail(err, at, intended, began)
			return res, false
		}
		return w.request(ctx, intended, began)
	}
	if err = w.cutOr(err); err != nil {
		w.fail(err, asking, intended, began)
		return res, false
	}
	end := w.run.since()
	w.last = end
	w.run.recorder.at(w.shard(), w.run.options.interval(end), func(c *cell) {
		w.count(c)
		c.statuses[res.status]++
		if res.status >= 400 {
			c.errors[statusKind(res.status)]++
			return
		}
		c.answered++
		record(c.raw, end-began)
		if c.latency != c.raw {
			record(c.latency, end-intended)
		}
	})
	return res, true
}

// count moves the bytes into a cell.
func (w *worker) count(c *cell) {
	c.sent += w.sent
	c.received += w.received
	w.sent, w.received = 0, 0
}

// fail records an error. A time-out waited for at least as long as it did.
func (w *worker) fail(err error, at stage, intended, began time.Duration) {
	w.drop()
	end := w.run.since()
	w.run.recorder.at(w.shard(), w.run.options.interval(end), func(c *cell) {
		w.count(c)
		if errors.Is(err, errCut) {
			c.cut++
			record(c.waited, end-intended)
			return
		}
		kind := kindOf(err, at)
		c.errors[kind]++
		if kind == Timeout || kind == ConnectTimeout {
			record(c.raw, end-began)
			if c.latency != c.raw {
				record(c.latency, end-intended)
			}
		}
	})
}
