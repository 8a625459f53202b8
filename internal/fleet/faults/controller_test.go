package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/controller"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// seat is where a controller may run.
type seat struct {
	number int // 1, or 2
	dir    string
	link   string // to the database
	run    *run   // nil: none runs
	away   bool   // the database cannot be reached from there
}

// run is a controller that runs, on the database of the fleet.
type run struct {
	*controller.Controller

	f        *fleet
	store    *store.Store
	listener *listener
	skew     time.Duration
	stop     context.CancelFunc
	work     sync.WaitGroup
}

// address is where hosts reach a controller.
func (s *seat) address() string { return addressOf(byte(s.number)).String() }

// addresses are where hosts reach controllers.
func (f *fleet) addresses() (all []string) {
	for _, s := range f.seats {
		all = append(all, s.address())
	}
	return all
}

// newSeat makes one, whose folder has what one of no other has.
func (f *fleet) newSeat() *seat {
	n := len(f.seats) + 1
	s := &seat{number: n, dir: filepath.Join(f.dir, fmt.Sprint("controller-", n)), link: filepath.Join(f.links, fmt.Sprint(n))}
	if n == 1 {
		check(os.MkdirAll(s.dir, 0o700))
	} else {
		check(os.CopyFS(s.dir, os.DirFS(f.seats[0].dir)))
	}
	f.seats = append(f.seats, s)
	f.reach(s, true)
	return s
}

// reach has the database be reached from a seat, or not.
func (f *fleet) reach(s *seat, is bool) {
	to := filepath.Join(f.dir, "fleet.db")
	if !is {
		to = filepath.Join(f.dir, "nowhere", "fleet.db")
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	check(os.Symlink(to, s.link+".new"))
	check(os.Rename(s.link+".new", s.link))
	s.away = !is
}

// start starts a controller.
func (f *fleet) start(s *seat) {
	f.reach(s, true)
	r := &run{f: f, listener: &listener{at: s, conns: make(chan net.Conn), closed: make(chan struct{})}}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.store = must(store.Open(ctx, "sqlite:"+s.link))
	r.store.Clock = f.clock
	if f.faults() && f.skewed {
		f.fault("controller's clock wrong", nil)
		r.skew = []time.Duration{-26 * time.Hour, 26 * time.Hour}[f.below(2)]
	}
	r.Controller = must(controller.New(ctx, controller.Options{
		Dir: s.dir, Store: r.store, Version: "1", Controllers: f.addresses(),
		Now: func() time.Time { return time.Now().Add(r.skew) },
	}))
	r.work.Go(func() { check(r.Serve(ctx, r.listener)) })
	for plant, does := range map[planted]func(context.Context){haltedAdvances: r.advance, lostMoves: r.settleAtOnce, staleSteps: r.stepLate} {
		if f.bug == plant {
			r.work.Go(func() { does(ctx) })
		}
	}
	f.mutex.Lock()
	s.run = r
	f.mutex.Unlock()
}

// kill ends a controller, whose connections break at once.
func (f *fleet) kill(s *seat) {
	f.mutex.Lock()
	r := s.run
	s.run = nil
	f.mutex.Unlock()
	if r == nil {
		return
	}
	for _, h := range f.hosts {
		h.link.breakAll(s)
	}
	r.stop()
	r.work.Wait()
	f.reach(s, true)
	f.audit.harvest(&f.history, r.store, f.floors, 0)
	check(r.store.Close())
}

// killAll ends all of them.
func (f *fleet) killAll() {
	for _, s := range f.seats {
		f.kill(s)
	}
}

// startAll starts those that do not run, and has all reach the database.
func (f *fleet) startAll() {
	for _, s := range f.seats {
		f.reach(s, true)
		if s.run == nil {
			f.start(s)
		}
	}
}

// running is a controller that a person may ask; nil: there is none.
func (f *fleet) running() *run {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var all []*run
	for _, s := range f.seats {
		if s.run != nil && !s.away {
			all = append(all, s.run)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[f.random.IntN(len(all))]
}

// publish sends what the operator's repository has, and begins the roll-out of a bundle.
func (r *run) publish(number int64) error {
	r.f.mutex.Lock()
	blobs := maps.Clone(r.f.blobs)
	r.f.mutex.Unlock()
	for hash, text := range blobs {
		if err := r.store.PutBlob(context.Background(), hash, 1<<20, bytes.NewReader(text)); err != nil {
			return err
		}
	}
	m := must(r.f.signs.Metadata())
	_, err := r.Publish(context.Background(), "operator:ann", api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: number})
	return err
}

// command is a person's word to the newest roll-out.
func (f *fleet) command(kind rollout.Kind) {
	r := f.running()
	if r == nil {
		return
	}
	all := must(r.store.Rollouts(context.Background(), 1000))
	if len(all) == 0 {
		return
	}
	_, err := r.Command(context.Background(), all[0].ID, rollout.Command{Kind: kind, Who: "operator:ann"})
	var refused *rollout.RefusedError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, store.ErrConflict) {
		f.t.Error(err)
	}
}

// advance is the planted bug of a controller.
func (r *run) advance(ctx context.Context) {
	for ; ctx.Err() == nil; wait(ctx, 3*time.Second) {
		rows, err := r.store.OpenRollouts(ctx)
		if err != nil {
			continue
		}
		for _, row := range rows {
			var s rollout.State
			check(json.Unmarshal(row.State, &s))
			if s.Phase != rollout.Halted {
				continue
			}
			for id, h := range s.Hosts {
				h.Excused = true
				s.Hosts[id] = h
			}
			s.Phase = s.Was
			row.Phase, row.State = string(s.Phase), must(json.Marshal(s))
			_, _ = r.store.Move(ctx, "controller", "rollout.step", store.Move{Rollouts: []store.Rollout{row}}) // somebody else was quicker
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// stepLate is another one: what a controller read some time ago, it writes over what there is now.
func (r *run) stepLate(ctx context.Context) {
	for ctx.Err() == nil {
		before, err := r.store.OpenRollouts(ctx)
		wait(ctx, 4*time.Second)
		now, wrong := r.store.OpenRollouts(ctx)
		if err != nil || wrong != nil {
			continue
		}
		for _, row := range now {
			i := slices.IndexFunc(before, func(b store.Rollout) bool { return b.ID == row.ID && b.Version != row.Version })
			if i < 0 {
				continue
			}
			row.Phase, row.State = before[i].Phase, before[i].State
			_, _ = r.store.Move(ctx, "controller", "rollout.step", store.Move{Rollouts: []store.Rollout{row}}) // somebody else was quicker
		}
	}
}

// audit is what is known of roll-outs by the audit chain, which has all that was committed
// in its order.
type audit struct {
	last        store.Entry
	incarnation int64
	rollouts    map[int64]rollout.Rollout
	unheard     bool // nobody sees what hosts are told: what was committed counts
}

func (a audit) clone() audit {
	a.rollouts = maps.Clone(a.rollouts)
	return a
}

// harvest writes the history of what was committed since it was done last, by a clock that
// is so much ahead. Floors are those of what was signed, by bundle.
func (a *audit) harvest(history *History, s *store.Store, floors map[int64]int64, ahead time.Duration) {
	for _, e := range must(s.Audit(context.Background(), a.last.Seq, 1_000_000)) {
		if e.Seq != a.last.Seq+1 || e.Previous != a.last.Hash {
			history.Add(Event{At: e.At, Kind: Audited, Error: fmt.Sprintf("entry %d does not follow %d", e.Seq, a.last.Seq)})
		}
		a.last = e
		if time.Until(e.At) > time.Hour {
			e.At = e.At.Add(-ahead)
		}
		var diff struct {
			Incarnation int64           `json:"incarnation"`
			To          json.RawMessage `json:"to"`
			Guest       string          `json:"guest"`
			Bundle      int64           `json:"bundle"`
			Moved       []struct {
				Rollout, Bundle int64
				To              rollout.Phase
			} `json:"moved"`
			Desired []store.Desired `json:"desired"`
		}
		check(json.Unmarshal(e.Diff, &diff))
		switch e.What {
		case "fleet.create":
			a.incarnation = diff.Incarnation
		case "fleet.incarnation":
			check(json.Unmarshal(diff.To, &a.incarnation))
		case "guest.moved":
			var to store.Placement
			check(json.Unmarshal(diff.To, &to))
			history.Add(Event{At: e.At, Kind: Settled, Host: to.Host, What: guestWord + diff.Guest})
		case "publish":
			if diff.Bundle != 0 {
				history.Add(Event{At: e.At, Kind: Published, Bundle: diff.Bundle, Floor: floors[diff.Bundle]})
			}
		}
		changed := map[int64]bool{}
		for _, m := range diff.Moved {
			r := a.rollouts[m.Rollout]
			r.ID, r.Bundle, r.State.Phase = m.Rollout, m.Bundle, m.To
			by := rollout.Moved{Phase: m.To}
			if e.Who != "controller" {
				by.Who = e.Who
			}
			r.State.History = append(r.State.History[:len(r.State.History):len(r.State.History)], by)
			a.rollouts[m.Rollout], changed[m.Rollout] = r, true
		}
		for _, d := range diff.Desired {
			r := a.rollouts[d.Rollout]
			r.State.Hosts = maps.Clone(r.State.Hosts)
			if r.State.Hosts == nil {
				r.State.Hosts = map[string]rollout.Host{}
			}
			r.State.Hosts[d.Host] = rollout.Host{Target: d.Bundle}
			a.rollouts[d.Rollout], changed[d.Rollout] = r, true
		}
		for id := range changed {
			history.Add(Event{At: e.At, Kind: Kept, Rollout: a.rollouts[id], Order: wire.Order{Incarnation: a.incarnation}})
		}
		if a.unheard {
			for _, d := range diff.Desired {
				history.Add(Event{At: e.At, Kind: Told, Host: d.Host, Bundle: d.Bundle, RolloutID: d.Rollout, Order: wire.Order{Incarnation: a.incarnation}})
			}
		}
	}
}

func (f *fleet) faults() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.faulty
}

// listener is where a controller listens.
type listener struct {
	at     *seat
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(addressOf(byte(l.at.number))) }
