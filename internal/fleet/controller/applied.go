package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/base/sorting"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// applied is what hosts do of the bans and allows that they have. It is in memory first, and
// in the database within keepApplied, for the other controllers on it and the next one.
type applied struct {
	mutex  sync.Mutex
	of     map[string]*taken
	unsaid map[string]bool
}

// taken is what a host has said of them.
type taken struct {
	speaks bool      // its program knows them
	joined time.Time // when it connected here last, by the clock of the database
	said   wire.LiveApplied
	at     time.Time
	seen   time.Time // by a controller, of a host that is not connected here
}

const (
	keepApplied = 5 * time.Second
	// heardFor is how long a host that was seen is online at another controller: that writes
	// it down twice in this time, see sight.
	heardFor = 2 * sightEvery
)

func (a *applied) init() { a.of, a.unsaid = map[string]*taken{}, map[string]bool{} }

// get is called with the mutex.
func (a *applied) get(host string) *taken {
	t := a.of[host]
	if t == nil {
		t = &taken{}
		a.of[host] = t
	}
	return t
}

// joins is what a host that has connected says that it has.
func (a *applied) joins(host string, has *wire.Living, now, database time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	t := a.get(host)
	t.at, t.joined = now, database
	if t.speaks = has != nil; !t.speaks {
		return
	}
	a.unsaid[host] = true // so that the other controllers know where it is
	if *has != t.said.Living {
		t.said = wire.LiveApplied{Living: *has}
	}
}

// says keeps what a host says, and returns what it had said before.
func (a *applied) says(host string, m *wire.LiveApplied, now time.Time) taken {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	t := a.get(host)
	before := *t
	t.speaks, t.said, t.at = true, *m, now
	a.unsaid[host] = true
	return before
}

// behind says that most of the hosts that are connected and know bans have not said yet that
// they have got to a number.
func (a *applied) behind(online map[string]hub.Presence, seq int64) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	all, there := 0, 0
	for host := range online {
		if t := a.of[host]; t != nil && t.speaks {
			all++
			if t.said.Living.Seq >= seq {
				there++
			}
		}
	}
	return 2*there < all
}

// keep writes what hosts have said into the database.
func (c *Controller) keepAppliedOn(ctx context.Context) {
	for range ticks(ctx, keepApplied) {
		c.applied.mutex.Lock()
		unsaid := c.applied.unsaid
		c.applied.unsaid = map[string]bool{}
		var rows []store.Applied
		for host := range unsaid {
			text, err := json.Marshal(c.applied.of[host].said)
			if err == nil {
				rows = append(rows, store.Applied{Host: host, Said: string(text), At: c.applied.of[host].at})
			}
		}
		c.applied.mutex.Unlock()
		err := c.Store.PutApplied(ctx, rows)
		c.answered(err)
		if err != nil && !store.Answered(err) {
			c.applied.mutex.Lock()
			maps.Copy(c.applied.unsaid, unsaid)
			c.applied.mutex.Unlock()
		}
	}
}

// elsewhere reads what the hosts have said that are not connected here.
func (c *Controller) elsewhere(ctx context.Context, hosts []string) (map[string]taken, error) {
	out := map[string]taken{}
	if len(hosts) == 0 {
		return out, nil
	}
	rows, err := c.Store.Applied(ctx, hosts...)
	for _, r := range rows {
		t := taken{speaks: true, at: r.At, seen: r.Seen}
		if err := json.Unmarshal([]byte(r.Said), &t.said); err == nil {
			out[r.Host] = t
		}
	}
	return out, err
}

// stand is a host, what it has said, and whether somebody hears it.
type stand struct {
	host   string
	taken  taken
	online bool
}

// stands are the hosts of a selector, and of only unless it is nil, by name.
func (c *Controller) stands(ctx context.Context, hosts string, only *selector.Selector) ([]stand, error) {
	means, online := c.means(hosts, only), c.hub.Online()
	sorting.By(means, func(a, b store.Host) int { return cmp.Compare(a.ID, b.ID) })
	var away []string
	for _, h := range means {
		if _, here := online[h.ID]; !here {
			away = append(away, h.ID)
		}
	}
	others, err := c.elsewhere(ctx, away)
	if err != nil {
		return nil, err
	}
	now := c.Now()
	out := make([]stand, len(means))
	c.applied.mutex.Lock()
	defer c.applied.mutex.Unlock()
	for i, h := range means {
		_, here := online[h.ID]
		is := stand{host: h.ID, online: here}
		if t := c.applied.of[h.ID]; t != nil {
			is.taken = *t
		}
		if other, has := others[h.ID]; has && other.at.After(is.taken.at) {
			is.taken, is.online = other, now.Sub(other.seen) < heardFor
		}
		out[i] = is
	}
	return out, nil
}

// standing is what the hosts of a selector do of the bans and allows up to a number, or of
// that with an ID alone.
func (c *Controller) standing(ctx context.Context, seq int64, id, hosts string, only *selector.Selector) (*api.Standing, error) {
	all, err := c.stands(ctx, hosts, only)
	if err != nil {
		return nil, err
	}
	incarnation := c.view.Load().position.Incarnation
	out := &api.Standing{Hosts: make([]api.HostStanding, len(all))}
	for i, s := range all {
		h := &out.Hosts[i]
		h.Host = s.host
		h.State, h.Reason, h.Refused = s.says(seq, id, incarnation)
		if h.State == api.LiveProved {
			h.Proved = s.taken.said.Proved
			out.Proved++
		}
	}
	return out, nil
}

// counts says on how many of the hosts of a selector something is proved.
func (c *Controller) counts(ctx context.Context, hosts string, only *selector.Selector) (func(store.Living) (proved, of int), error) {
	all, err := c.stands(ctx, hosts, only)
	incarnation := c.view.Load().position.Incarnation
	return func(e store.Living) (proved, of int) {
		for _, s := range all {
			if state, _, _ := s.says(e.Seq, e.ID, incarnation); state == api.LiveProved {
				proved++
			}
		}
		return proved, len(all)
	}, err
}

// says tells how it is on a host, and why it is not in force. Without an ID it is about all
// up to the number.
func (s *stand) says(seq int64, id string, incarnation int64) (state api.LiveState, reason string, refused []api.NotLive) {
	said := &s.taken.said
	for _, r := range said.Refused {
		if id == "" || r.Id == id {
			refused = append(refused, api.NotLive{Id: r.Id, Why: r.Why})
		}
	}
	switch {
	case !s.online:
		return api.LiveOffline, "not connected; it gets this when it is back", nil
	case !s.taken.speaks:
		return api.LiveUnable, "its sluice is too old for bans of a fleet", nil
	case said.Waiting != "": // such a host gets no further, where its rules are gone for one
		return api.LiveWaiting, said.Waiting, nil
	case said.Living.Incarnation != incarnation || said.Living.Seq < seq:
		return api.LivePending, "it has not answered yet", nil
	case len(refused) > 0:
		return api.LiveRefused, refused[0].Why, refused
	case said.Proved.IsZero():
		return api.LivePending, "it is not proved yet", nil
	}
	return api.LiveProved, "", nil
}
