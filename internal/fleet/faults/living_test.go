package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	agent "sluice/internal/agent/fleet"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

// bans is what a kernel holds of the fleet's bans and allows, which end by its own clock.
type bans map[string]borne

type borne struct {
	agent.LivingItem
	incarnation int64
}

// Live takes it all, as a host's engine does: what the whole of an incarnation does not have
// is lifted, and of an older one allows alone.
func (k *kernel) Live(_ context.Context, change *agent.Living) (*agent.Lived, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.host.f.faults() && k.host.f.chance(15) {
		k.host.f.fault("kernel busy", k.host)
		return nil, errCut
	}
	if k.bans == nil {
		k.bans = bans{}
	}
	sets := map[string]bool{}
	for _, is := range change.Set {
		sets[is.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(k.bans)) {
		b := k.bans[id]
		within := change.Whole && id > change.From && (change.To == "" || id <= change.To) && !sets[id]
		lifted := within && (b.incarnation == change.Incarnation || b.Allow)
		if k.host.f.bug == lostBans && within {
			lifted = true
		}
		if lifted || slices.Contains(change.Lift, id) {
			k.living(Lifted, b)
			delete(k.bans, id)
		}
	}
	for _, is := range change.Set {
		if k.host.f.bug != wallClock { // it ends after that time, however the clock is set
			is.Until = is.Until.Add(-k.host.clock.ahead())
		}
		if k.host.f.bug == longBans {
			is.Until = is.Until.Add(time.Hour)
		}
		if k.host.f.bug == oldClock {
			is.Until = is.Until.Add(-time.Duration(k.host.f.back.Load()))
		}
		k.bans[is.ID] = borne{is, change.Incarnation}
		k.living(Bears, k.bans[is.ID])
	}
	return &agent.Lived{Proved: true}, nil
}

func (k *kernel) living(kind Kind, b borne) {
	k.host.f.history.Add(Event{Kind: kind, Host: k.host.id, What: b.ID, Allow: b.Allow, Until: b.Until})
}

// ban is a person's ban, or whom they let in, or the end of it. The controller has answered
// once it is in the database.
func (f *fleet) ban() {
	r := f.running()
	if r == nil {
		return
	}
	kind := []string{trust.LivingBan, trust.LivingAllow}[f.below(2)]
	e := store.Living{Kind: kind, What: fmt.Sprintf("203.0.113.%d", f.below(12)), Hosts: []string{"", "role=web"}[f.below(2)]}
	e.ID = trust.LivingID(e.Kind, e.What, e.Service, e.Hosts)
	ctx := context.Background()
	if f.chance(3) {
		f.history.Add(Event{Kind: Lifting, What: e.ID})
		must(r.store.Lift(ctx, "operator:ann", map[string]string{trust.LivingBan: trust.LivingUnban, trust.LivingAllow: trust.LivingDisallow}[kind], "", []string{e.ID}))
		return
	}
	for _, made := range must(r.store.Hold(ctx, "operator:ann", 1000, false, []store.Hold{{Living: e, For: time.Minute + f.upTo(10*time.Minute)}})) {
		f.history.Add(Event{Kind: Holds, What: made.ID, Allow: kind == trust.LivingAllow, Until: f.real(made.Expires)})
	}
}

// endLiving records what the database holds, and what each host does.
func (f *fleet) endLiving(s *store.Store) {
	_, all, err := s.Holding(context.Background(), "", "", 1000)
	check(err)
	for _, e := range all {
		f.history.Add(Event{Kind: Wanted, What: e.ID, Allow: e.Kind == trust.LivingAllow, Until: f.real(e.Expires)})
	}
	for _, h := range f.hosts {
		h.kernel.mutex.Lock()
		for _, id := range slices.Sorted(maps.Keys(h.kernel.bans)) {
			if b := h.kernel.bans[id]; b.Until.After(time.Now()) {
				h.kernel.living(Borne, b)
			}
		}
		h.kernel.mutex.Unlock()
		if h.kernel.bundle() != 0 { // else nothing says what may be banned there
			f.history.Add(Event{Kind: Borne, Host: h.id})
		}
	}
}
