package controller

import (
	"context"
	"encoding/json"
	"slices"

	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// news is what a host is told of members and guests: nil of what it needs not.
type news struct {
	members, guests *wire.Document
	lacking         []string // small blobs of them that it does not have
	number          int64    // the highest that they are signed by
	lists           string   // the same for the same live lists
}

// name is the same for the same documents.
func (n *news) name() string {
	name := ""
	for _, doc := range []*wire.Document{n.members, n.guests} {
		if doc != nil {
			name += doc.Content
		}
		name += " "
	}
	return name
}

// newsFor is that of a host that is to run what the view says, and has kept some.
func (c *Controller) newsFor(ctx context.Context, v *view, id string, k known) (n *news, err error) {
	n = &news{}
	bundle := v.desired[id].Bundle
	if bundle == 0 {
		return n, nil
	}
	groups, err := c.used(ctx, v, id, bundle)
	if err != nil {
		return n, err
	}
	d := &c.documents
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if len(groups) > 0 || k.members != "" {
		doc, err := d.membersFor(groups)
		if err == nil {
			n.members, err = c.tellOf(v, n, doc, k.members, k.floor)
		}
		if err != nil {
			return n, err
		}
		if n.members.Content != k.members {
			n.lacking = append(n.lacking, doc.changed(k.members)...)
		}
	}
	if d.guestsOf[id] == nil && k.guests != "" { // it has none any more
		if err := d.guestsAt(v, id); err != nil {
			return n, err
		}
	}
	if doc := d.guestsOf[id]; doc != nil {
		n.guests, err = c.tellOf(v, n, doc, k.guests, k.floor)
	}
	return n, err
}

// tellOf is how a host is told of a document, signed by no lower a number than it may have
// seen. It is called with the mutex.
func (c *Controller) tellOf(v *view, n *news, doc *document, kept string, floor int64) (*wire.Document, error) {
	d, roots := &c.documents, len(c.trust.Load().Roots)
	if doc.number.Incarnation != v.position.Incarnation || doc.roots != roots || doc.number.Revision < floor && doc.content != kept {
		number := store.Position{Incarnation: v.position.Incarnation, Revision: max(d.at.Revision, floor)}
		envelope, err := c.online.SignLive(doc.kind, number.Revision, json.RawMessage(doc.payload))
		if err != nil {
			return nil, err
		}
		doc.old = d.older(doc.old, doc.signed)
		doc.signed, doc.size, doc.number = d.keep(envelope), int64(len(envelope)), number
		doc.roots = roots
	}
	if doc.content != kept && doc.size <= wire.MostPushed {
		n.lacking = append(n.lacking, doc.signed)
	}
	n.number = max(n.number, doc.number.Revision)
	return &wire.Document{Sha256: doc.signed, Size: doc.size, Content: doc.content}, nil
}

// mostChanged is how many texts of sets come with what is desired. Hosts fetch those beyond.
const mostChanged = 32

// changed are the small texts of sets that who keeps a version from before does not have.
func (doc *document) changed(kept string) (hashes []string) {
	i := slices.IndexFunc(doc.before, func(was version) bool { return was.content == kept })
	if i < 0 {
		return nil
	}
	room := int64(mostSent)
	for name, c := range doc.sets {
		if c != doc.before[i].sets[name] && c.Size > 0 && c.Size <= min(room, wire.MostPushed) && len(hashes) < mostChanged {
			hashes, room = append(hashes, c.SHA256), room-c.Size
		}
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// until is the last revision of which a host has all that keeps some content; 0: none is known.
func (doc *document) until(content string, now int64) int64 {
	if doc == nil || content == doc.content {
		return now
	}
	for i := len(doc.before) - 1; i >= 0; i-- {
		if doc.before[i].content == content {
			return doc.before[i].until
		}
	}
	return 0
}
