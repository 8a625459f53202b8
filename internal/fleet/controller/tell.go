package controller

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// telling keeps the messages of one position: hosts that are alike are told the same bytes.
type telling struct {
	turns    sync.Map // of *sync.Mutex, by host
	mutex    sync.Mutex
	at       store.Position
	messages map[string][]byte
}

// mostSent is how many bytes of blobs come with what is desired. Hosts fetch what is more.
const mostSent = 256 << 10

// desiredOf is what a host is to run.
func (c *Controller) desiredOf(ctx context.Context, id string) (*wire.Desired, error) {
	d, _, err := c.desiredIn(ctx, c.view.Load(), id)
	return d, err
}

func (c *Controller) desiredIn(ctx context.Context, v *view, id string) (*wire.Desired, *news, error) {
	d := v.desired[id]
	out := &wire.Desired{Order: wire.Order(v.position), Bundle: d.Bundle, Rollout: d.Rollout, Since: d.Revision, Prefetch: c.driver.prefetch(id)}
	if d.Rollout != 0 {
		plan, err := c.driver.plan(ctx, c.Store, d.Rollout)
		if err != nil {
			return nil, nil, err
		}
		out.ConfirmSeconds = int(time.Duration(plan.Confirm).Seconds())
	}
	out.Labels = v.hosts[id].LabelsOrder
	n, err := c.newsFor(ctx, v, id, c.statuses.read(id))
	if err == nil {
		out.Lists, n.lists, err = c.listsFor(ctx, v, id, d.Bundle)
	}
	out.Members, out.Guests = n.members, n.guests
	return out, n, err
}

// tell tells a host what it is to run, with the blobs that it needs for that. Of two that tell the
// same host at once the second looks at what is desired after the first: what is older never comes
// last.
func (c *Controller) tell(ctx context.Context, id string) {
	is, _ := c.telling.turns.LoadOrStore(id, &sync.Mutex{})
	turn, _ := is.(*sync.Mutex)
	turn.Lock()
	defer turn.Unlock()
	message, err := c.telling.message(ctx, c, id)
	if err != nil {
		c.Note(err)
		return
	}
	c.hub.Tell(id, hub.Desired, message)
}

func (t *telling) message(ctx context.Context, c *Controller, id string) ([]byte, error) {
	v := c.view.Load()
	d, n, err := c.desiredIn(ctx, v, id)
	if err != nil {
		return nil, err
	}
	hashes, err := c.lacking(ctx, v, id, d, n)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(d.Bundle, d.Rollout, " ", d.Since, hashes, ordered(v.hosts[id]), n.name(), n.lists)
	if d.Prefetch != nil {
		key = fmt.Sprint(*d.Prefetch, key)
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.at != v.position || t.messages == nil {
		t.at, t.messages = v.position, map[string][]byte{}
	}
	if made := t.messages[key]; made != nil {
		c.statuses.told(id, n)
		return made, nil
	}
	for _, hash := range hashes {
		content, _, err := c.open(ctx, hash)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(content)
		if err != nil {
			return nil, err
		}
		d.Blobs = append(d.Blobs, text)
	}
	made, err := wire.Encode(&wire.Message{Desired: d})
	if err == nil {
		t.messages[key] = made
		c.statuses.told(id, n)
	}
	return made, err
}

// lacking are small blobs of what is desired that a host is not known to have. It fetches
// those that are lost on the way.
func (c *Controller) lacking(ctx context.Context, v *view, id string, d *wire.Desired, n *news) (hashes []string, err error) {
	bundle := d.Bundle
	if d.Prefetch != nil {
		bundle = d.Prefetch.Bundle
	}
	k := c.statuses.read(id)
	if bundle != 0 && !slices.Contains(k.have, bundle) {
		if hashes, err = c.newsOf(ctx, v, id, bundle, k.settled); err != nil {
			return nil, err
		}
	}
	hashes = append(hashes, n.lacking...)
	return hashes[:min(len(hashes), wire.MostBlobs)], nil
}

// told notes what a host is told of members and guests.
func (s *statuses) told(id string, n *news) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	is := s.get(id)
	is.told, is.floor = n.name(), max(is.floor, n.number)
	if n.members != nil {
		is.members = n.members.Content
	}
	if n.guests != nil {
		is.guests = n.guests.Content
	}
}

// newsOf are the blobs of a bundle for a host that the bundle which it runs does not have.
func (c *Controller) newsOf(ctx context.Context, v *view, id string, bundle, runs int64) ([]string, error) {
	of, err := c.contents.of(ctx, c.Store, bundle)
	if err != nil {
		return nil, err
	}
	var before *content
	key := of.class(v, id)
	if _, has := v.bundles[runs]; has {
		before, err = c.contents.of(ctx, c.Store, runs)
		if err != nil { // it was removed, or cannot be asked for: the host is sent all files
			before = nil
		}
	}
	if before != nil {
		key = fmt.Sprint(key, " ", runs, " ", before.class(v, id))
	}
	of.mutex.Lock()
	defer of.mutex.Unlock()
	if hashes, known := of.news[key]; known {
		return hashes, nil
	}
	labels := v.hosts[id].Labels
	files, err := of.manifest.Select(id, labels)
	if err != nil {
		return nil, err
	}
	had := map[string]string{}
	if before != nil {
		old, err := before.manifest.Select(id, labels)
		if err != nil {
			return nil, err
		}
		for _, f := range old {
			had[f.Path] = f.SHA256
		}
	}
	var hashes []string
	room := int64(mostSent)
	add := func(hash string, size int64) {
		if size <= min(room, wire.MostPushed) && !slices.Contains(hashes, hash) {
			hashes, room = append(hashes, hash), room-size
		}
	}
	add(of.sha256, of.size)
	for _, f := range files {
		if had[f.Path] != f.SHA256 {
			add(f.SHA256, f.Size)
		}
	}
	if of.news == nil {
		of.news = map[string][]string{}
	}
	of.news[key] = hashes
	return hashes, nil
}
