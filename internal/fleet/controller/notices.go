package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
)

const (
	// noticeEvery is how often the controller compares what is wrong with the open notices.
	noticeEvery = 2 * time.Second
	// quiet is how long something has to be away until it has ended: what comes and goes is one
	// notice.
	quiet = 5 * time.Minute
	// takenBack is how long a roll-out counts as halted after it was taken back, so that none is
	// missed between two looks.
	takenBack = time.Minute
	// listFails is how long a list must have failed: one failed request is no news.
	listFails = 15 * time.Minute
	// certificatesEvery is how often the database is asked when the certificates of hosts end.
	certificatesEvery = time.Minute
)

// What is near its end. A host renews its certificate of 30 days at half of them, and the
// controller signs each hour what is fresh for a day.
const (
	nearCertificate = 7 * 24 * time.Hour
	nearSignature   = 14 * 24 * time.Hour
	nearTimestamp   = 12 * time.Hour
)

// Ended notices are kept so long, and so many of them.
const (
	noticesKept = 30 * 24 * time.Hour
	mostNotices = 2_000
)

// noticing is what the controller does about notices.
type noticing struct {
	open atomic.Pointer[[]store.Notice] // as they were read last

	mutex        sync.Mutex
	certificates map[string]time.Time // when those of hosts end
	read         time.Time            // when that was looked up
	told         map[string]*outcome  // since the controller began, by receiver
	tested       time.Time            // when receivers were sent a test last
}

type outcome struct{ sent, failed int64 }

func (n *noticing) init(c *notices.Config) {
	n.told = map[string]*outcome{}
	if c != nil {
		for i := range c.Receivers {
			n.told[c.Receivers[i].Name] = &outcome{}
		}
	}
}

// thing is what a notice is about.
type thing struct {
	kind    notices.Kind
	subject string
}

// notice keeps what is wrong, and has receivers told.
func (c *Controller) notice(ctx context.Context) {
	var tellers sync.WaitGroup
	defer tellers.Wait()
	for _, to := range c.receivers() {
		tellers.Go(func() { c.tellReceiver(ctx, to) })
	}
	for {
		if err := c.lookForNotices(ctx); err != nil && ctx.Err() == nil && c.away() == "" {
			c.Note(fmt.Errorf("what is wrong is not told: %w", err))
		}
		select {
		case <-time.After(noticeEvery):
		case <-ctx.Done():
			return
		}
	}
}

// lookForNotices compares what is wrong with the notices that are open.
func (c *Controller) lookForNotices(ctx context.Context) error {
	open, err := c.Store.Notices(ctx, false)
	c.answered(err)
	if err != nil {
		return err
	}
	c.noticing.open.Store(&open)
	known := map[thing]bool{}
	for _, n := range open {
		known[thing{notices.Kind(n.Kind), n.Subject}] = true
	}
	found, unknown, err := c.wrongs(ctx, known)
	if err != nil {
		return err
	}
	now := c.Now()
	var begun, changed []store.Notice
	for t, text := range found {
		if !known[t] {
			begun = append(begun, store.Notice{Kind: string(t.kind), Subject: t.subject, Text: notices.Line(text), Since: now})
		}
	}
	for _, n := range open {
		t := thing{notices.Kind(n.Kind), n.Subject}
		text, is := found[t]
		before := n
		switch {
		case is:
			n.Gone = time.Time{}
			if text != "" {
				n.Text = notices.Line(text)
			}
		case unknown[t]:
		case n.Gone.IsZero():
			n.Gone = now
		case now.Sub(n.Gone) >= quiet:
			n.Ended = n.Gone
		}
		if n != before {
			changed = append(changed, n)
		}
	}
	if len(begun)+len(changed) == 0 {
		return nil
	}
	if err := c.Store.ChangeNotices(ctx, begun, changed); err != nil {
		return err
	}
	open, err = c.Store.Notices(ctx, false)
	if err == nil {
		c.noticing.open.Store(&open)
	}
	return err
}

// wrongs are what is wrong now, with how it is said ("" where that stays), and of what it is
// not known here whether it is: another controller may have the host.
func (c *Controller) wrongs(ctx context.Context, known map[thing]bool) (found map[thing]string, unknown map[thing]bool, err error) {
	found, unknown = map[thing]string{}, map[thing]bool{}
	v, online, now := c.view.Load(), c.hub.Online(), c.Now()
	ends, err := c.certificateEnds(ctx)
	if err != nil {
		return nil, nil, err
	}
	for id, h := range v.hosts {
		if !h.Revoked.IsZero() {
			continue
		}
		if until, has := ends[id]; has && until.Sub(now) < nearCertificate {
			found[thing{notices.Certificate, id}] = fmt.Sprintf("the certificate of host %s ends %s, and it has not renewed it", id, english.Moment(until))
		}
		there, connected := online[id]
		k := c.statuses.read(id)
		drift, refused := thing{notices.Drift, id}, thing{notices.Refused, id}
		switch state, reason, _ := stateOf(k, h, v, there, connected, now); {
		case state == api.Drift:
			found[drift], unknown[refused] = fmt.Sprintf("host %s drifts: %s", id, counted(reason)), true
		case state == api.Refused:
			found[refused] = fmt.Sprintf("host %s refuses what it should run: %s", id, reason)
		case state == api.Offline, state == api.Claimed, k.at.IsZero():
			unknown[drift], unknown[refused] = true, true
		}
	}
	if err := c.stopped(ctx, found, known); err != nil {
		return nil, nil, err
	}
	if err := c.failingLists(ctx, v, found); err != nil {
		return nil, nil, err
	}
	for what, at := range c.signatureEnds() {
		near, of := nearSignature, what
		if what == "timestamp" {
			near, of = nearTimestamp, "what says which bundle is the newest"
		}
		if at.Sub(now) < near {
			found[thing{notices.Signature, what}] = fmt.Sprintf("the signature of %s ends %s: hosts take nothing new then, and keep what they run", of, english.Moment(at))
		}
	}
	return found, unknown, nil
}

// counted is the first of differences, of which each is a line, without the packets that are like
// its own, and how many more there are: the host's row in "hosts" has all of it.
func counted(differences string) string {
	lines := strings.FieldsFunc(differences, func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(lines[0], "; all of ")
	if more := len(lines) - 1; more > 0 {
		first += ", and " + english.Plural(more, "more difference")
	}
	return first
}

// stopped finds the roll-outs that stopped.
func (c *Controller) stopped(ctx context.Context, found map[thing]string, known map[thing]bool) error {
	rows, err := c.Store.StoppedRollouts(ctx, c.Now().Add(-takenBack))
	if err != nil {
		return err
	}
	for _, r := range rows {
		t := thing{notices.Halted, strconv.FormatInt(r.ID, 10)}
		found[t] = ""
		if known[t] {
			continue // why it stopped first is what people are to hear
		}
		var state rollout.State
		if err := json.Unmarshal(r.State, &state); err != nil {
			return fmt.Errorf("roll-out %d: %w", r.ID, err)
		}
		what, why := "is taken back", state.Reason
		for _, h := range state.History {
			if h.Phase == rollout.Halted {
				what, why = "was halted", h.Reason
			}
		}
		found[t] = fmt.Sprintf("roll-out %d of bundle %d %s: %s", r.ID, r.Bundle, what, why)
	}
	return nil
}

func (c *Controller) failingLists(ctx context.Context, v *view, found map[thing]string) error {
	rows := c.lists.rows.Load()
	if rows == nil {
		return nil
	}
	var wanted map[string]liveList
	for name, row := range *rows {
		if row.Failure == "" || c.Now().Sub(row.Failing) < listFails {
			continue
		}
		if wanted == nil {
			var err error
			if wanted, err = c.wantedLists(ctx, v); err != nil {
				return err
			}
		}
		if l, is := wanted[name]; is {
			found[thing{notices.List, l.set}] = fmt.Sprintf("the live list %s cannot be renewed: %s", l.set, row.Failure)
		}
	}
	return nil
}

// certificateEnds are when the certificates of hosts end, as of a minute ago at most.
func (c *Controller) certificateEnds(ctx context.Context) (map[string]time.Time, error) {
	n := &c.noticing
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if now := c.Now(); n.certificates == nil || now.Sub(n.read) >= certificatesEvery {
		ends, err := c.Store.CertificateEnds(ctx)
		if err != nil {
			return nil, err
		}
		n.certificates, n.read = ends, now
	}
	return n.certificates, nil
}

// pruneNotices forgets old ones.
func (c *Controller) pruneNotices(ctx context.Context) error {
	return c.Store.PruneNotices(ctx, c.Now().Add(-noticesKept), mostNotices)
}
