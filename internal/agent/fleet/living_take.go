package fleet

import (
	"context"
	"errors"
	"maps"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/trust"
)

// edit changes what the state has of bans and allows. It is recorded later.
func (m *Member) edit(change func(*living)) {
	m.mu.Lock()
	change(&m.state.Living)
	m.mu.Unlock()
}

// takeLiving brings a part of the log into force.
func (m *Member) takeLiving(ctx context.Context, b *trust.Bans, seq int64) error {
	at := m.now().Living.At.Seq
	if seq <= at {
		return nil
	}
	new := b.Entries
	for len(new) > 0 && new[0].Seq <= at { // they are in order
		new = new[1:]
	}
	if err := m.takeEntries(ctx, b, new); err != nil {
		return err
	}
	m.edit(func(l *living) { l.At.Seq = seq })
	return nil
}

// takeEntries brings entries into force, the last of each ID.
func (m *Member) takeEntries(ctx context.Context, b *trust.Bans, entries []trust.Living) error {
	if len(entries) == 0 && !b.Whole {
		return nil
	}
	change := Living{Incarnation: m.Trust.State().Incarnation, Whole: b.Whole, From: b.From, To: b.To}
	labels := m.labels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels = maps.Clone(labels)
	labels["host"] = m.Host
	last := make(map[string]*trust.Living, len(entries))
	for i := range entries {
		last[entries[i].ID] = &entries[i]
	}
	until := make(map[string]time.Time, len(last))
	change.Set = make([]LivingItem, 0, len(last))
	m.lives.mu.Lock()
	clock := m.lives.clock
	m.lives.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if last[e.ID] != e {
			continue
		}
		is, err := m.item(e, labels, &clock)
		if err != nil {
			return err
		}
		if is == nil {
			change.Lift = append(change.Lift, e.ID)
			continue
		}
		until[e.ID] = is.Until
		change.Set = append(change.Set, *is)
	}
	out, err := m.Engine.Live(ctx, &change)
	if err != nil {
		return err
	}
	m.edit(func(l *living) {
		next := map[string]refused{}
		for id, r := range l.Refused {
			if _, again := last[id]; !again && r.Until.After(m.Clock()) {
				next[id] = r
			}
		}
		for id, why := range out.Refused {
			next[id] = refused{cut(why, mostWhy), until[id]}
		}
		l.Refused = next
	})
	m.wasProved(out.Proved)
	return nil
}

// item is what an entry is for this host; nil where it is lifted, or for others.
func (m *Member) item(e *trust.Living, labels map[string]string, clock *dbClock) (*LivingItem, error) {
	if e.Kind == trust.LivingUnban || e.Kind == trust.LivingDisallow {
		return nil, nil
	}
	if e.Hosts != "" {
		s, err := selector.Parse(e.Hosts)
		if err != nil || !s.Match(labels) {
			return nil, err
		}
	}
	what, err := addrset.ParseRange(e.What)
	if err != nil {
		return nil, err
	}
	left := min(clock.left(e.Expires), e.Expires.Sub(e.Made)) // less, where the database's clock was set back
	return &LivingItem{ID: e.ID, Allow: e.Kind == trust.LivingAllow, What: what, Service: e.Service, Until: m.Clock().Add(left), Who: e.Who, Reason: e.Reason}, nil
}

// provedLiving has the kernel read where it is not known that it has all.
func (m *Member) provedLiving(ctx context.Context) error {
	m.lives.mu.Lock()
	proved := m.lives.proved
	m.lives.mu.Unlock()
	if !proved.IsZero() {
		return nil
	}
	out, err := m.Engine.Live(ctx, &Living{Incarnation: m.Trust.State().Incarnation})
	if err != nil {
		return err
	}
	if !out.Proved {
		return errors.New("the kernel does not have all that the fleet bans")
	}
	m.wasProved(true)
	return nil
}

func (m *Member) wasProved(is bool) {
	m.lives.mu.Lock()
	defer m.lives.mu.Unlock()
	if m.lives.proved = (time.Time{}); is {
		m.lives.proved = m.Clock()
	}
}
