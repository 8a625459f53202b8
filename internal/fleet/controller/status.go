package controller

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// known is what a host has said of itself.
type known struct {
	report wire.Report
	at     time.Time // when it came; zero: none did
	since  time.Time // when bundle and state became what they are
	drifts time.Time // since when it drifts; zero: it does not
	seen   time.Time
	have   []int64    // the bundles that it keeps
	heard  wire.Order // the newest that it had heard of when it came
	// members and guests are the contents that it keeps, or that it was sent.
	members, guests string
	told            string // the documents that it was told of last
	floor           int64  // no document of a lower number is taken by it
	// settled is what it ran last that is not to be undone unless it is confirmed.
	settled int64

	version  string
	kernel   string // since this controller began
	backend  string
	facts    string // the SHA-256 of those that it has sent
	level    int
	protocol int
	claimed  time.Time  // when a second host claimed its name last
	claimant netip.Addr // from where
}

// statuses are what all hosts have said. It is in memory first, and in the database within
// writeEvery.
type statuses struct {
	mutex    sync.Mutex
	of       map[string]*known
	unsaid   map[string]bool // reports that the database does not have
	sighted  map[string]bool
	facts    map[string][]byte
	moved    map[string][]netip.Addr // hosts that have other addresses
	moves    map[string]time.Time    // when the database was told so last
	unstored chan struct{}
}

func (s *statuses) init() {
	s.of, s.unsaid, s.sighted, s.facts = map[string]*known{}, map[string]bool{}, map[string]bool{}, map[string][]byte{}
	s.moved, s.moves = map[string][]netip.Addr{}, map[string]time.Time{}
	s.unstored = make(chan struct{}, 1)
}

// proof is what a status of the store has beside its columns.
type proof struct {
	Running     int64     `json:"running,omitempty"`
	Proved      time.Time `json:"proved,omitzero"`
	Verified    time.Time `json:"verified,omitzero"`
	Drift       string    `json:"drift,omitempty"`
	Drifts      time.Time `json:"drifts,omitzero"`
	Restored    time.Time `json:"restored,omitzero"`
	Undone      string    `json:"undone,omitempty"`
	Settled     int64     `json:"settled,omitempty"`
	Incarnation int64     `json:"incarnation,omitempty"`
	Members     string    `json:"members,omitempty"`
	Guests      string    `json:"guests,omitempty"`

	Failed map[string]string `json:"failed,omitempty"`
}

// load reads what hosts said to the controller before this one.
func (s *statuses) load(ctx context.Context, from *store.Store) error {
	all, err := from.Statuses(ctx)
	if err != nil {
		return err
	}
	hosts, err := from.Hosts(ctx)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, h := range hosts {
		s.get(h.ID).seen = h.Seen
		s.get(h.ID).version, s.get(h.ID).level, s.get(h.ID).protocol, s.get(h.ID).facts = h.Version, h.Level, h.Protocol, h.Facts
	}
	for _, is := range all {
		k := s.get(is.Host)
		var p proof
		if is.Proof != "" {
			if err := json.Unmarshal([]byte(is.Proof), &p); err != nil {
				return err
			}
		}
		k.at, k.since, k.settled, k.drifts = is.At, is.Since, p.Settled, p.Drifts
		if is.At.After(k.seen) {
			k.seen = is.At
		}
		k.report = wire.Report{
			Order:  wire.Order{Incarnation: p.Incarnation, Revision: is.Revision},
			Bundle: is.Bundle, Rollout: is.Rollout, State: wire.State(is.State), Error: is.Reason,
			Running: p.Running, Mark: is.Mark, Generation: is.Generation, Proved: p.Proved, Verified: p.Verified, Drift: p.Drift,
			Members: p.Members, Guests: p.Guests, Restored: p.Restored, Undone: p.Undone, Failed: p.Failed,
		}
	}
	return nil
}

// get is called with the mutex.
func (s *statuses) get(host string) *known {
	k := s.of[host]
	if k == nil {
		k = &known{}
		s.of[host] = k
	}
	return k
}

// read is a copy.
func (s *statuses) read(host string) known {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if k := s.of[host]; k != nil {
		return *k
	}
	return known{}
}

func (s *statuses) wake() {
	select {
	case s.unstored <- struct{}{}:
	default:
	}
}

// joined is called by the hub when a host's stream has begun.
func (c *Controller) joined(host string, hello *wire.Hello, level int) {
	now := c.Now()
	c.statuses.mutex.Lock()
	k := c.statuses.get(host)
	k.seen, k.version, k.level, k.protocol, k.have = now, hello.Version, hello.LanguageLevel, level, hello.Have
	k.kernel, k.backend = hello.Kernel, hello.Backend
	k.heard, k.members, k.guests, k.told = hello.Order, hello.Members, hello.Guests, ""
	if k.floor = 0; hello.Order.Incarnation == c.view.Load().position.Incarnation {
		k.floor = hello.Order.Revision
	}
	c.statuses.sighted[host] = true
	if is := c.view.Load().hosts[host].Addresses; len(hello.Addresses) > 0 && !slices.Equal(is, hello.Addresses) {
		c.statuses.moved[host] = hello.Addresses
	} else {
		delete(c.statuses.moved, host) // it is back before that was written
	}
	c.statuses.mutex.Unlock()
	if hello.Report != nil {
		c.reported(host, hello.Report, now)
	}
	c.statuses.wake()
	if message := c.signed(); message != nil {
		c.hub.Tell(host, hub.Trust, message)
	}
	c.applied.joins(host, hello.Living, now, c.living.clock())
	c.tellLiving(host, hello.Living)
	c.tell(context.Background(), host)
	if hello.Facts != "" && hello.Facts != c.statuses.read(host).facts {
		c.hub.Tell(host, hub.Ask, askFacts)
	}
	c.driver.look()
}

var askFacts = []byte(`{"ask":{"what":"facts"}}`)

// left is called by the hub when it has ended.
func (c *Controller) left(host string) {
	c.meter.forget(host)
	c.questions.left(host)
	c.statuses.mutex.Lock()
	c.statuses.get(host).seen = c.Now()
	c.statuses.sighted[host] = true
	c.statuses.mutex.Unlock()
	c.statuses.wake()
	c.driver.look()
}

// said is called by the hub for what a host says.
func (c *Controller) said(host string, m *wire.Message) {
	switch {
	case m.Report != nil:
		if c.reported(host, m.Report, c.Now()) || c.driver.prefetch(host) != nil {
			c.driver.look()
		} else {
			c.driver.lookLater()
		}
	case m.LiveApplied != nil:
		c.spreadBans(c.applied.says(host, m.LiveApplied, c.Now()), m.LiveApplied)
		return
	case m.Findings != nil:
		c.examined.says(host, m.Findings, c.Now())
		return
	case m.Sample != nil:
		c.samples.says(host, m.Sample, c.Now())
		return
	case m.LimitBans != nil:
		c.offers.says(host, m.LimitBans)
		return
	case m.Facts != nil:
		c.statuses.mutex.Lock()
		c.statuses.facts[host] = m.Facts.Facts
		c.statuses.get(host).facts = wire.Hash(m.Facts.Facts)
		c.statuses.mutex.Unlock()
	}
	c.statuses.wake()
}

// reported keeps a report, and says whether a roll-out may go on by it.
func (c *Controller) reported(host string, r *wire.Report, now time.Time) bool {
	c.statuses.mutex.Lock()
	defer c.statuses.mutex.Unlock()
	k := c.statuses.get(host)
	c.meter.reported(host, r, &k.report, now)
	turned := !onTheWay(r) || k.report.Drift != r.Drift
	if k.report.Guests != r.Guests || len(k.report.Failed) > 0 || k.report.Proved.IsZero() && !r.Proved.IsZero() {
		c.memberships() // a guest may leave the host where it was
	}
	if k.at.IsZero() || k.report.Bundle != r.Bundle || k.report.State != r.State {
		k.since = now
	}
	switch {
	case r.Drift == "":
		k.drifts = time.Time{}
	case k.drifts.IsZero():
		k.drifts = now
	}
	k.report, k.at, k.seen = *r, now, now
	if !tried(r) {
		k.settled = r.Running
	}
	if holds(r) && !slices.Contains(k.have, r.Bundle) {
		k.have = append(k.have, r.Bundle)
		k.have = slices.Clone(k.have[max(0, len(k.have)-mostHave):])
	}
	c.statuses.unsaid[host] = true
	return turned
}

// onTheWay says that a host is about what it was told.
func onTheWay(r *wire.Report) bool {
	switch r.State {
	case wire.StateFetched, wire.StateChecked, wire.StatePending, wire.StateProved:
		return true
	}
	return r.State == wire.StateNone && r.Bundle != 0
}

// mostHave is how many bundles of a host are remembered.
const mostHave = 64

// tried says that what runs is to be undone unless it is confirmed.
func tried(r *wire.Report) bool {
	return r.Running == r.Bundle && (r.State == wire.StatePending || r.State == wire.StateProved)
}

// holds says that the host has all files of the bundle that it reports.
func holds(r *wire.Report) bool {
	return r.Bundle > 0 && r.State != wire.StateNone && r.State != wire.StateRefused
}

// claimed is called by the hub when a second host with the same key was refused.
func (c *Controller) claimed(host string, by, _ netip.Addr) {
	c.statuses.mutex.Lock()
	defer c.statuses.mutex.Unlock()
	k := c.statuses.get(host)
	k.claimed, k.claimant = c.Now(), by
}

// writeEvery is how long statuses are gathered.
const writeEvery = 500 * time.Millisecond

// sightEvery is how often the database is told that hosts are still heard.
const sightEvery = time.Minute

// sight notes that all hosts that are connected are heard.
func (c *Controller) sight(ctx context.Context) {
	for range ticks(ctx, sightEvery) {
		now := c.Now()
		c.statuses.mutex.Lock()
		for id := range c.hub.Online() {
			c.statuses.get(id).seen = now
			c.statuses.sighted[id] = true
		}
		c.statuses.mutex.Unlock()
		c.statuses.wake()
	}
}

// writeStatuses writes what hosts say into the database, many at a time.
func (c *Controller) writeStatuses(ctx context.Context) {
	for {
		ended := false
		select {
		case <-c.statuses.unstored:
		case <-ctx.Done():
			ended = true
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		err := c.statuses.write(last, c.Store, c.Now())
		cancel()
		c.answered(err)
		if ended {
			return
		}
		wait := writeEvery
		if err != nil {
			wait = retryAfter
			c.statuses.wake()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// moveEvery is how long a host that has moved waits with its next addresses: they are
// audited, and all hosts apply the sets that hold them.
const moveEvery = time.Minute

// settle takes out the addresses that the database is told now. It is called with the mutex.
func (s *statuses) settle(now time.Time) map[string][]netip.Addr {
	told := map[string][]netip.Addr{}
	for host, addresses := range s.moved {
		if now.Sub(s.moves[host]) >= moveEvery {
			told[host], s.moves[host] = addresses, now
			delete(s.moved, host)
		}
	}
	return told
}

// write writes what the database does not have yet; what it could not take stays unsaid.
func (s *statuses) write(ctx context.Context, into *store.Store, now time.Time) error {
	s.mutex.Lock()
	unsaid, sighted, facts, moved := s.unsaid, s.sighted, s.facts, s.settle(now)
	s.unsaid, s.sighted, s.facts = map[string]bool{}, map[string]bool{}, map[string][]byte{}
	var rows []store.Status
	for host := range unsaid {
		k := s.of[host]
		text, err := json.Marshal(proof{k.report.Running, k.report.Proved, k.report.Verified, k.report.Drift, k.drifts, k.report.Restored, k.report.Undone, k.settled, k.report.Order.Incarnation, k.report.Members, k.report.Guests, k.report.Failed})
		if err != nil {
			s.mutex.Unlock()
			return err
		}
		rows = append(rows, store.Status{
			Host: host, Bundle: k.report.Bundle, Rollout: k.report.Rollout, Revision: k.report.Order.Revision, Generation: k.report.Generation,
			Mark: k.report.Mark, Proof: string(text), State: string(k.report.State), Reason: k.report.Error, Since: k.since, At: k.at,
		})
	}
	var seen []store.Sighting
	for host := range sighted {
		k := s.of[host]
		seen = append(seen, store.Sighting{Host: host, At: k.seen, Version: k.version, Level: k.level, Protocol: k.protocol})
	}
	s.mutex.Unlock()
	err := into.PutStatus(ctx, rows)
	if err == nil && len(seen) > 0 {
		err = into.Seen(ctx, seen)
	}
	for host, text := range facts {
		if err == nil {
			_, err = into.PutFacts(ctx, host, text)
		}
	}
	for host, addresses := range moved {
		if err == nil {
			err = into.SetAddresses(ctx, "host:"+host, host, addresses)
		}
	}
	if err == nil || store.Answered(err) {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for host := range unsaid {
		s.unsaid[host] = true
	}
	for host := range sighted {
		s.sighted[host] = true
	}
	for host, addresses := range moved {
		if _, newer := s.moved[host]; !newer {
			s.moved[host] = addresses
		}
		delete(s.moves, host)
	}
	for host, text := range facts {
		if _, newer := s.facts[host]; !newer {
			s.facts[host] = text
		}
	}
	return err
}
