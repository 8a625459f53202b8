package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// driver keeps the roll-outs that are open. Being right rests on the store, which takes a
// step only on the version that it was made of.
type driver struct {
	looks chan struct{}
	later atomic.Bool

	moving turn     // one step or command at a time
	open   []driven // by number; nil: to be read
	read   bool

	mutex   sync.Mutex
	plans   map[int64]rollout.Plan
	ordered map[string]wire.Prefetch
}

// turn is a mutex that is held while the database is written to, which may wait for another
// controller. Who waits for it waits at a channel: at a mutex, no time would go by in
// testing/synctest, by whose clock SQLite waits there.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// driven is a roll-out and what the store has of it.
type driven struct {
	rollout.Rollout

	kept   store.Rollout
	stored rollout.State // as the store has it
	// unstored says that State is another.
	unstored bool
	at       time.Time // since when
}

func (d *driver) init() {
	d.looks, d.moving = make(chan struct{}, 1), make(turn, 1)
	d.plans, d.ordered = map[int64]rollout.Plan{}, map[string]wire.Prefetch{}
}

// look has the roll-outs stepped soon.
func (d *driver) look() {
	select {
	case d.looks <- struct{}{}:
	default:
	}
}

// lookLater has them stepped within a second: so long it may take until what hosts are about
// is seen in a roll-out.
func (d *driver) lookLater() {
	if d.later.CompareAndSwap(false, true) {
		time.AfterFunc(storeEvery, func() {
			d.later.Store(false)
			d.look()
		})
	}
}

// prefetch is what a host was asked to fetch.
func (d *driver) prefetch(host string) *wire.Prefetch {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if p, has := d.ordered[host]; has {
		return &p
	}
	return nil
}

// plan is that of a roll-out, which never changes except for its floor.
func (d *driver) plan(ctx context.Context, from *store.Store, id int64) (rollout.Plan, error) {
	d.mutex.Lock()
	p, has := d.plans[id]
	d.mutex.Unlock()
	if has {
		return p, nil
	}
	r, err := from.Rollout(ctx, id)
	if err != nil {
		return p, err
	}
	if p, err = readPlan(r.Plan); err == nil {
		d.mutex.Lock()
		d.plans[id] = p
		d.mutex.Unlock()
	}
	return p, err
}

// load reads the open roll-outs. It is called with moving.
func (c *Controller) load(ctx context.Context) error {
	if c.driver.read {
		return nil
	}
	rows, err := c.Store.OpenRollouts(ctx)
	if err != nil {
		return err
	}
	c.driver.open = nil
	for _, row := range slices.Backward(rows) {
		d, err := readRollout(row)
		if err != nil {
			return err
		}
		c.driver.open = append(c.driver.open, d)
	}
	c.driver.read = true
	return nil
}

func readRollout(row store.Rollout) (driven, error) {
	p, err := readPlan(row.Plan)
	d := driven{Rollout: rollout.Rollout{ID: row.ID, Bundle: row.Bundle, Plan: p}, kept: row}
	if err == nil {
		err = json.Unmarshal(row.State, &d.State)
	}
	if err != nil {
		err = fmt.Errorf("roll-out %d: %w", row.ID, err)
	}
	d.stored = d.State
	return d, err
}

// row is what the store is to have of it.
func (d *driven) row() (store.Rollout, error) {
	row := d.kept
	row.Bundle, row.Phase, row.Closed = d.Bundle, string(d.State.Phase), d.Closed()
	var err error
	if row.Plan, err = json.Marshal(d.Plan); err != nil {
		return row, err
	}
	row.State, err = json.Marshal(d.State)
	return row, err
}

// stepEvery is how long what happens is gathered before roll-outs are stepped.
const stepEvery = 100 * time.Millisecond

// storeEvery is how often what hosts said is written into a roll-out's state while nothing
// follows from it. A controller that comes after this one hears it from the hosts.
const storeEvery = time.Second

// After a step the driver rests for so many times as long as the step took, up to longestRest.
const (
	restFor     = 40
	longestRest = time.Second
)

// longest is after how long roll-outs are looked at though nothing is known to be due.
const longest = time.Minute

// drive steps the roll-outs whenever something has happened or is due.
func (c *Controller) drive(ctx context.Context) {
	for due := time.Duration(0); ; {
		timer := time.NewTimer(due)
		select {
		case <-c.driver.looks:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		var err error
		began := time.Now()
		if due, err = c.step(ctx); err != nil {
			due = retryAfter
			if errors.Is(err, store.ErrConflict) {
				due = 0
			} else if !errors.Is(err, context.Canceled) && c.away() == "" {
				c.Note(err)
			}
		}
		select {
		case <-time.After(min(longestRest, max(stepEvery, restFor*time.Since(began)))):
		case <-ctx.Done():
			return
		}
	}
}

// step steps each open roll-out, and says when the next step is due.
func (c *Controller) step(ctx context.Context) (time.Duration, error) {
	c.driver.moving.Lock()
	defer c.driver.moving.Unlock()
	if err := c.load(ctx); err != nil {
		return 0, err
	}
	if err := c.supersede(ctx); err != nil { // before an old one takes another step
		return 0, err
	}
	due := longest
	for i := range c.driver.open {
		d := c.driver.open[i]
		seen, err := c.seen(ctx, d.Bundle)
		if err != nil {
			return 0, err
		}
		next := d
		next.Plan.Floor = c.online.State().Floor
		var orders []rollout.Order
		next.Rollout, orders = next.Step(seen, c.Now())
		if err := c.move(ctx, self, i, next, orders); err != nil {
			return 0, err
		}
		is := &c.driver.open[i]
		if !is.State.Until.IsZero() {
			due = min(due, max(0, is.State.Until.Sub(c.Now())))
		}
		if is.unstored {
			due = min(due, max(0, is.at.Add(storeEvery).Sub(c.Now())))
		}
	}
	return due, c.supersede(ctx)
}

// move keeps the next state of an open roll-out, with what hosts are told by it.
func (c *Controller) move(ctx context.Context, who string, i int, next driven, orders []rollout.Order) error {
	old := c.driver.open[i]
	m := store.Move{}
	var prefetches []string
	for _, o := range orders {
		if o.Prefetch {
			prefetches = append(prefetches, o.Host)
		} else {
			m.Desired = append(m.Desired, store.Desired{Host: o.Host, Bundle: o.Bundle, Rollout: next.ID})
		}
	}
	before := old.Rollout
	before.State = old.stored
	next.unstored = next.Changed(before)
	switch now := c.Now(); {
	case !next.unstored && len(m.Desired) == 0:
		c.driver.open[i] = next
	case who == self && len(m.Desired) == 0 && next.State.Phase == before.State.Phase && next.State.Stage == before.State.Stage && now.Sub(old.at) < storeEvery:
		c.driver.open[i] = next
	default:
		row, err := next.row()
		if err != nil {
			return err
		}
		m.Rollouts = []store.Rollout{row}
		rows, err := c.Store.Move(ctx, who, "rollout."+row.Phase, m)
		if err != nil {
			c.driver.read = false
			return err
		}
		next.kept, next.stored, next.unstored, next.at = rows[0], next.State, false, now
		c.driver.open[i] = next
	}
	c.driver.mutex.Lock()
	for _, d := range m.Desired {
		delete(c.driver.ordered, d.Host)
	}
	for _, host := range prefetches {
		c.driver.ordered[host] = wire.Prefetch{Bundle: next.Bundle, Rollout: next.ID}
	}
	c.driver.mutex.Unlock()
	for _, host := range prefetches {
		c.tell(ctx, host)
	}
	return nil
}

// supersede ends those that a newer one takes the place of, and drops what is closed.
func (c *Controller) supersede(ctx context.Context) error {
	open := c.driver.open
	for i := range open {
		for j := range open {
			if open[j].Supersedes(open[i].Rollout) {
				next := open[i]
				var err error
				if next.Rollout, err = next.Do(rollout.Command{Kind: rollout.Supersede, Who: self, By: open[j].Bundle}, c.Now()); err != nil {
					return err
				}
				if err := c.move(ctx, self, i, next, nil); err != nil {
					return err
				}
			}
		}
	}
	c.driver.open = slices.DeleteFunc(open, func(d driven) bool { return d.Closed() })
	return nil
}

// endAll ends all open roll-outs in one step.
func (c *Controller) endAll(ctx context.Context, why string) error {
	c.driver.moving.Lock()
	defer c.driver.moving.Unlock()
	c.driver.read = false
	if err := c.load(ctx); err != nil {
		return err
	}
	var m store.Move
	for _, d := range c.driver.open {
		var err error
		if d.Rollout, err = d.Do(rollout.Command{Kind: rollout.Supersede, Who: self, Why: why}, c.Now()); err != nil {
			return err
		}
		row, err := d.row()
		if err != nil {
			return err
		}
		m.Rollouts = append(m.Rollouts, row)
	}
	c.driver.read = false
	if len(m.Rollouts) == 0 {
		return nil
	}
	_, err := c.Store.Move(ctx, self, "rollout.supersede", m)
	return err
}

// seen is what is known of all hosts, for a roll-out of a bundle.
func (c *Controller) seen(ctx context.Context, bundle int64) (map[string]rollout.Seen, error) {
	of, err := c.contents.of(ctx, c.Store, bundle)
	if err != nil {
		return nil, err
	}
	v, online := c.view.Load(), c.hub.Online()
	all := make(map[string]rollout.Seen, len(v.hosts))
	for id, h := range v.hosts {
		if !h.Revoked.IsZero() {
			continue
		}
		k := c.statuses.read(id)
		_, connected := online[id]
		s := rollout.Seen{
			Class: of.class(v, id), Level: k.level, Online: connected, Running: k.settled,
			Proved:  k.settled != 0 && k.report.Running == k.settled && !k.report.Proved.IsZero() && k.report.Drift == "",
			Fetched: slices.Contains(k.have, bundle), Drifted: k.report.Drift, Ordered: v.desired[id].Rollout,
		}
		if _, has := v.bundles[s.Running]; !has {
			s.Running, s.Proved = 0, false // the database was restored from before it
		}
		if !k.at.IsZero() && k.report.Order.Incarnation == v.position.Incarnation {
			s.Report = rollout.Report{Rollout: k.report.Rollout, Bundle: k.report.Bundle, State: rollout.HostState(k.report.State), Error: k.report.Error, At: k.at}
			for _, p := range k.report.Probes {
				if !p.Ok {
					s.Report.Evidence = append(s.Report.Evidence, fmt.Sprintf("probe %s: %s", p.Probe, p.Error))
				}
			}
		}
		all[id] = s
	}
	return all, nil
}

// start makes the roll-out of a bundle that was published, and ends those in its way.
func (c *Controller) start(ctx context.Context, who string, bundle int64, p rollout.Plan) (*rollout.Rollout, error) {
	c.driver.moving.Lock()
	defer c.driver.moving.Unlock()
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	now := c.Now()
	made := driven{Rollout: rollout.New(bundle, p, now)}
	for _, kind := range []rollout.Kind{rollout.Check, rollout.Sign} {
		var err error
		if made.Rollout, err = made.Do(rollout.Command{Kind: kind, Who: who}, now); err != nil {
			return nil, err
		}
	}
	row, err := made.row()
	if err != nil {
		return nil, err
	}
	rows, err := c.Store.Move(ctx, who, "rollout.start", store.Move{Rollouts: []store.Rollout{row}})
	if err != nil {
		return nil, err
	}
	made.kept, made.stored, made.at, made.ID = rows[0], made.State, now, rows[0].ID
	c.driver.open = append(c.driver.open, made)
	if err := c.supersede(ctx); err != nil {
		c.driver.read = false // the next step does it
	}
	c.driver.look()
	return &made.Rollout, nil
}

// Command has an open roll-out do something. A *rollout.RefusedError says that it does not
// fit.
func (c *Controller) Command(ctx context.Context, id int64, command rollout.Command) (*rollout.Rollout, error) {
	c.driver.moving.Lock()
	defer c.driver.moving.Unlock()
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.driver.open, func(d driven) bool { return d.ID == id })
	if i < 0 {
		row, err := c.Store.Rollout(ctx, id)
		if err != nil {
			return nil, err
		}
		d, err := readRollout(row)
		if err == nil {
			_, err = d.Do(command, c.Now()) // which says why not
		}
		return nil, cmp.Or(err, store.ErrConflict)
	}
	next := c.driver.open[i]
	var err error
	if next.Rollout, err = next.Do(command, c.Now()); err != nil {
		return nil, err
	}
	if err := c.move(ctx, command.Who, i, next, nil); err != nil {
		return nil, err
	}
	c.driver.look()
	return &next.Rollout, nil
}

// current is a roll-out as it is now, which the store is told of a moment later.
func (c *Controller) current(row store.Rollout) (rollout.Rollout, error) {
	if is, open := c.driver.opened(row.ID); open {
		return is, nil
	}
	d, err := readRollout(row)
	return d.Rollout, err
}

// opened is a roll-out that this controller drives.
func (d *driver) opened(id int64) (rollout.Rollout, bool) {
	d.moving.Lock()
	defer d.moving.Unlock()
	for _, open := range d.open {
		if d.read && open.ID == id {
			return open.Rollout, true
		}
	}
	return rollout.Rollout{}, false
}
