package controller

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/exposition"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// meter counts what nothing else keeps, since the controller began.
type meter struct {
	mutex  sync.Mutex
	unfit  map[string]int64      // what was refused for its signature, by whom
	wanted map[string]wanted     // what hosts that are connected were told last, until it is confirmed
	spread map[string]*histogram // by stage
}

// wanted is since when a host is to run what it was told.
type wanted struct {
	at      time.Time
	bundle  int64
	reached map[wire.State]bool
}

// bounds are the upper bounds of the histogram, in seconds.
var bounds = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

type histogram struct {
	counts [11]int64 // one a bound, and what is above the last
	sum    float64
}

func (h *histogram) add(d time.Duration) {
	i, _ := slices.BinarySearch(bounds, d.Seconds())
	h.counts[i]++
	h.sum += d.Seconds()
}

// stages are the states of a host whose times are kept.
var stages = []wire.State{wire.StateFetched, wire.StatePending, wire.StateProved, wire.StateConfirmed}

// stageBan is that of bans and allows: from when one was accepted until a host has proved it.
const stageBan = "ban"

// Who refuses signatures.
const (
	byController = "controller"
	byHost       = "host"
)

func (m *meter) init() {
	m.unfit, m.wanted = map[string]int64{byController: 0, byHost: 0}, map[string]wanted{}
	m.spread = map[string]*histogram{}
	for _, s := range stages {
		m.spread[string(s)] = &histogram{}
	}
	m.spread[stageBan] = &histogram{}
}

// want notes that a host which is connected is to run another bundle.
func (m *meter) want(host string, bundle int64, now time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.wanted[host] = wanted{now, bundle, map[wire.State]bool{}}
}

// wants notes of those hosts that are connected which of them are to run another bundle.
func (c *Controller) wants(old, next *view, ids []string) {
	if len(ids) == 0 {
		return
	}
	online, now := c.hub.Online(), c.Now()
	for _, id := range ids {
		if _, is := online[id]; is && next.desired[id].Bundle != old.desired[id].Bundle {
			c.meter.want(id, next.desired[id].Bundle, now)
		}
	}
}

// forget is for a host that is gone: how long it is away is no time of the fleet's.
func (m *meter) forget(host string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.wanted, host)
}

// reported keeps when a host says for the first time that it has come so far, and whether it
// refuses for a signature what it did not refuse before.
func (m *meter) reported(host string, r, before *wire.Report, now time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if r.State == wire.StateRefused && unsigned(r.Error) && (before.State != r.State || before.Error != r.Error) {
		m.unfit[byHost]++
	}
	w, is := m.wanted[host]
	if !is || r.Bundle != w.bundle || !slices.Contains(stages, r.State) {
		return
	}
	for _, s := range stages { // it may not have said of each that it was there
		if !w.reached[s] {
			w.reached[s] = true
			m.spread[string(s)].add(now.Sub(w.at))
		}
		if s == r.State {
			break
		}
	}
	if r.State == wire.StateConfirmed {
		delete(m.wanted, host)
	}
}

// spreadBans keeps how long the oldest of those bans and allows took that a host says it has proved
// now. What was made before it connected is no time of the fleet's.
func (c *Controller) spreadBans(before taken, m *wire.LiveApplied) {
	if m.Proved.IsZero() || m.Living.Incarnation != before.said.Living.Incarnation || m.Living.Seq <= before.said.Living.Seq {
		return
	}
	l := &c.living
	l.mutex.Lock()
	entries, has := l.behind(before.said.Living.Seq)
	now := l.now()
	l.mutex.Unlock()
	if !has || len(entries) == 0 || entries[0].Made.Before(before.joined) {
		return
	}
	c.meter.mutex.Lock()
	defer c.meter.mutex.Unlock()
	c.meter.spread[stageBan].add(max(0, now.Sub(entries[0].Made)))
}

// unsigned says of the words in which a host refuses that they are about a signature.
func unsigned(said string) bool {
	return strings.Contains(said, trust.ErrUnsigned.Error()) || strings.Contains(said, trust.ErrThreshold.Error())
}

// verified counts an error of what somebody gave to the controller as signed.
func (m *meter) verified(err error) {
	if errors.Is(err, trust.ErrUnsigned) || errors.Is(err, trust.ErrThreshold) {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		m.unfit[byController]++
	}
}

// Metrics is all that the controller is, in numbers.
func (o operator) Metrics(w http.ResponseWriter, r *http.Request) {
	families := o.families(r.Context())
	w.Header().Set("Content-Type", exposition.ContentType)
	_ = exposition.Write(w, families) // who asked is gone
}

func (c *Controller) families(ctx context.Context) []exposition.Family {
	asked := time.Now()
	f, err := c.Store.Fleet(ctx)
	took := time.Since(asked)
	c.answered(err)
	var holding map[string]int64
	if err == nil {
		holding, err = c.Store.CountHolding(ctx)
	}
	var open []store.Rollout
	if err == nil {
		open, err = c.Store.OpenRollouts(ctx)
	}
	one := func(name string, value float64) exposition.Family {
		out := family(name)
		out.Add(value, nil)
		return out
	}
	v, online := c.view.Load(), c.hub.Online()
	info := family("info")
	info.Add(1, map[string]string{"fleet": c.Fleet(), "version": c.Version})
	out := []exposition.Family{
		info, c.hostsFamily(),
		one("streams", float64(len(online))),
		c.spreadFamily(), c.unfitFamily(),
		one("revision", float64(v.position.Revision)),
		one("database_up", truth(err == nil)),
		one("database_seconds", took.Seconds()),
	}
	if err == nil {
		out = append(out, rolloutsFamily(open), one("audit_entries", float64(f.Head.Seq)),
			one("bans", float64(holding[trust.LivingBan])), one("allows", float64(holding[trust.LivingAllow])))
	}
	return append(out, c.endsFamily(), c.certificatesFamily(), c.listsFamily(), c.noticesFamily(), c.toldFamily(true), c.toldFamily(false))
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// states are all that a host may be in.
var states = []api.HostState{api.Claimed, api.Drift, api.None, api.Offline, api.Proved, api.Refused, api.Restored, api.Stale}

func (c *Controller) hostsFamily() exposition.Family {
	out := family("hosts")
	of := map[api.HostState]int{}
	for _, h := range c.hosts(nil).Hosts {
		of[h.State]++
	}
	for _, state := range states {
		out.Add(float64(of[state]), map[string]string{"state": string(state)})
	}
	return out
}

// phases are those of roll-outs that something may come of.
var phases = []rollout.Phase{
	rollout.Draft, rollout.Checked, rollout.Signed, rollout.Prefetched, rollout.Pushed, rollout.Settled, rollout.Done,
	rollout.Paused, rollout.Halted, rollout.Reverting,
}

func rolloutsFamily(open []store.Rollout) exposition.Family {
	out := family("rollouts")
	of := map[rollout.Phase]int{}
	for _, r := range open {
		of[rollout.Phase(r.Phase)]++
	}
	for _, phase := range phases {
		out.Add(float64(of[phase]), map[string]string{"phase": string(phase)})
	}
	return out
}

func (c *Controller) spreadFamily() exposition.Family {
	out := family("propagation_seconds")
	c.meter.mutex.Lock()
	defer c.meter.mutex.Unlock()
	for _, stage := range slices.Sorted(maps.Keys(c.meter.spread)) {
		h := c.meter.spread[stage]
		out.AddHistogram(bounds, h.counts[:], h.sum, map[string]string{"stage": stage})
	}
	return out
}

func (c *Controller) unfitFamily() exposition.Family {
	out := family("signature_failures_total")
	c.meter.mutex.Lock()
	defer c.meter.mutex.Unlock()
	for _, by := range slices.Sorted(maps.Keys(c.meter.unfit)) {
		out.Add(float64(c.meter.unfit[by]), map[string]string{"by": by})
	}
	return out
}

func (c *Controller) endsFamily() exposition.Family {
	out := family("end_timestamp_seconds")
	ends := c.signatureEnds()
	for _, what := range slices.Sorted(maps.Keys(ends)) {
		out.Add(float64(ends[what].Unix()), map[string]string{"what": what})
	}
	return out
}

// signatureEnds are when what is signed ends.
func (c *Controller) signatureEnds() map[string]time.Time {
	is := c.online.State()
	out := map[string]time.Time{"root": is.RootExpires, "timestamp": is.TimestampExpires, "authority": c.online.AuthorityEnds()}
	if n := len(is.Bundles); n > 0 {
		out["bundle"] = is.Bundles[n-1].Expires
	}
	maps.DeleteFunc(out, func(_ string, at time.Time) bool { return at.IsZero() })
	return out
}
