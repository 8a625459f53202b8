package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// view is the desired state at one position. Nobody changes one.
type view struct {
	position store.Position
	restored bool // see [store.Fleet]
	hosts    map[string]store.Host
	hostsAt  int64 // the revision at which they became these
	desired  map[string]store.Desired
	bundles  map[int64]store.Bundle
	guests   map[string]*store.Guest
	guestsAt int64 // as hostsAt
}

// mostNamed is how many hosts of a change are read alone rather than all.
const mostNamed = 500

// refresh brings the view up to what the database says now, and tells those hosts for
// which that is another thing.
func (c *Controller) refresh(ctx context.Context) error {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	err := c.advance(ctx)
	c.answered(err)
	return err
}

func (c *Controller) advance(ctx context.Context) error {
	old := c.view.Load()
	if old == nil {
		return c.whole(ctx, nil)
	}
	feed, err := c.Store.Changes(ctx, old.position.Revision)
	if err != nil {
		return err
	}
	if feed.Position.Compare(old.position) < 0 {
		if err := c.isOlder(ctx, map[string]any{"was": old.position}); err != nil {
			return err
		}
	}
	if feed.Whole || feed.Incarnation != old.position.Incarnation {
		return c.whole(ctx, c.lists.names())
	}
	changed := map[string][]string{}
	all := false
	for _, change := range feed.Changes {
		changed[change.Kind] = append(changed[change.Kind], change.IDs...)
		all = all || change.Kind != "host" && change.Kind != "desired" && change.Kind != "rollout" && change.Kind != "guest" && change.Kind != "list"
	}
	if all || len(changed["host"]) > mostNamed || len(changed["desired"]) > mostNamed {
		return c.whole(ctx, changed["list"])
	}
	next := *old
	next.position = feed.Position
	if ids := changed["host"]; len(ids) > 0 {
		hosts, err := c.Store.Hosts(ctx, ids...)
		if err != nil {
			return err
		}
		next.hosts, next.hostsAt = maps.Clone(old.hosts), feed.Revision
		for _, id := range ids {
			delete(next.hosts, id)
		}
		for _, h := range hosts {
			next.hosts[h.ID] = h
		}
	}
	if ids := changed["desired"]; len(ids) > 0 {
		desired, err := c.Store.Desired(ctx, ids...)
		if err != nil {
			return err
		}
		next.desired = maps.Clone(old.desired)
		for _, d := range desired {
			next.desired[d.Host] = d
		}
	}
	if ids := changed["guest"]; len(ids) > 0 {
		if next.guests, err = c.guestsNow(ctx, old, ids); err != nil {
			return err
		}
		next.guestsAt = feed.Revision
	}
	if len(changed["list"]) > 0 {
		if err := c.readLists(ctx); err != nil {
			return err
		}
	}
	c.documents.changed(false, changed["host"], changed["guest"], func() { c.view.Store(&next) })
	c.cutRevoked(&next, changed["host"])
	c.wants(old, &next, changed["desired"])
	for _, id := range changed["desired"] {
		c.tell(ctx, id)
	}
	c.tellOrdered(ctx, old, &next, changed["host"])
	if len(changed["list"]) > 0 {
		c.tellLists(ctx, &next, changed["list"])
	}
	c.driver.look()
	if len(changed["host"])+len(changed["guest"]) > 0 {
		c.memberships()
	}
	return nil
}

// guestsNow are all guests, of which some are read again.
func (c *Controller) guestsNow(ctx context.Context, old *view, ids []string) (map[string]*store.Guest, error) {
	now := map[string]*store.Guest{}
	if len(ids) > mostNamed {
		ids = nil
	} else {
		now = maps.Clone(old.guests)
		for _, id := range ids {
			delete(now, id)
		}
	}
	guests, err := c.Store.Guests(ctx, ids...)
	for i := range guests {
		now[guests[i].ID] = &guests[i]
	}
	return now, err
}

// whole reads all of it, of which some live lists are known to have changed.
func (c *Controller) whole(ctx context.Context, lists []string) error {
	s, err := c.Store.Snapshot(ctx)
	if err == nil {
		err = c.readLists(ctx)
	}
	if err == nil {
		err = c.learn(ctx, s.Metadata)
	}
	if err != nil {
		return err
	}
	next := &view{
		position: s.Fleet.Position, restored: s.Fleet.Restored, hostsAt: s.Fleet.Revision, guestsAt: s.Fleet.Revision, hosts: map[string]store.Host{}, desired: map[string]store.Desired{},
		bundles: map[int64]store.Bundle{}, guests: map[string]*store.Guest{},
	}
	for _, h := range s.Hosts {
		next.hosts[h.ID] = h
	}
	for _, d := range s.Desired {
		next.desired[d.Host] = d
	}
	for _, b := range s.Bundles {
		next.bundles[b.Number] = b
	}
	for i := range s.Guests {
		next.guests[s.Guests[i].ID] = &s.Guests[i]
	}
	var old *view
	c.documents.changed(true, nil, nil, func() { old = c.view.Swap(next) })
	c.cutRevoked(next, slices.Collect(maps.Keys(next.hosts)))
	if old != nil {
		c.wants(old, next, slices.Collect(maps.Keys(next.desired)))
	}
	all := old == nil || old.position.Incarnation != next.position.Incarnation
	for id := range c.hub.Online() {
		if all || old.desired[id] != next.desired[id] || ordered(old.hosts[id]) != ordered(next.hosts[id]) {
			c.tell(ctx, id)
		}
	}
	if len(lists) > 0 && !all {
		c.tellLists(ctx, next, lists)
	}
	c.driver.look()
	c.memberships()
	return nil
}

// learn takes what was published at another controller on the same database, as a host would.
func (c *Controller) learn(ctx context.Context, all []store.Metadata) error {
	var m trust.Metadata
	var version int64
	for _, is := range all { // those of a role are in their order
		if is.Role == "root" {
			m.Roots = append(m.Roots, is.Body)
		} else {
			m.Targets, version = is.Body, is.Version
		}
	}
	if version <= c.online.State().TargetsVersion {
		return nil
	}
	if err := c.online.Publish(m, c.Now()); err != nil {
		c.Note(fmt.Errorf("what another controller has published is not taken: %w", err))
		return nil
	}
	return c.signHead(ctx) // what was signed here before may be of another incarnation
}

// cutRevoked ends the streams of hosts that may have none any more.
func (c *Controller) cutRevoked(v *view, ids []string) {
	for _, id := range ids {
		if h, has := v.hosts[id]; !has || !h.Revoked.IsZero() {
			go c.hub.Cut(id, revoked(id, h))
		}
	}
}

// follow keeps the view up to date.
func (c *Controller) follow(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := c.Store.Wait(ctx, c.view.Load().position.Revision)
		c.answered(err)
		if err == nil {
			err = c.refresh(ctx)
		}
		if errors.Is(err, store.ErrMoved) {
			c.moved <- err
			return
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	}
}

// retryAfter is how long a database is left alone that did not answer.
const retryAfter = time.Second

func readPlan(text json.RawMessage) (p rollout.Plan, err error) {
	return p, json.Unmarshal(text, &p)
}

func trustMessage(m trust.Metadata) *wire.Trust {
	return &wire.Trust{Roots: m.Roots, Timestamp: m.Timestamp, Snapshot: m.Snapshot, Targets: m.Targets}
}

// signed is the message of what is signed; nil before the first bundle.
func (c *Controller) signed() []byte {
	m := c.trust.Load()
	if m.Timestamp == nil {
		return nil
	}
	message, err := wire.Encode(&wire.Message{Trust: trustMessage(*m)})
	if err != nil {
		c.Note(err)
	}
	return message
}
