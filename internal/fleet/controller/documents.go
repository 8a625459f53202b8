package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// member is a host or a guest, of which groups are made.
type member struct {
	guest     bool
	labels    map[string]string
	addresses []netip.Addr
}

// document is what hosts are told of members or guests, all those to whom the same is told.
type document struct {
	kind    string
	payload []byte
	content string // hash of it
	sets    map[string]trust.Content

	number store.Position // by which it was signed
	roots  int            // how many root.json there were then, which name the key
	signed string         // hash of the envelope
	size   int64          // of the envelope

	seen   int64     // the last revision at which members were looked at
	before []version // the newest last
	old    []string  // hashes of envelopes from before
	pass   int64
}

// version is what a document was.
type version struct {
	content string
	until   int64 // the last revision at which it is known to have been this
	sets    map[string]trust.Content
}

// keptVersions is how many versions of a document are remembered.
const keptVersions = 16

// documents are made of the view, after it. Numbers in envelopes are its revisions, so that
// several controllers sign in one order, and none of it is in the database.
type documents struct {
	mutex    sync.Mutex
	at       store.Position
	was      int64 // the revision of the view before: those in between may never be seen
	pass     int64
	hosts    map[string]*member
	guests   map[string]*member
	placed   map[string]map[string]bool // guests by host
	moving   map[string]bool            // guests that are to leave a host
	holdings map[string]*holding        // by definition
	members  map[string]*document       // by the definitions of sets
	guestsOf map[string]*document       // by host
	texts    map[string]*text           // what hosts may fetch, by hash
	words    map[string]map[string]bool // those of the rules of a host's guests

	pending struct {
		all           bool
		hosts, guests map[string]bool
	}
}

// text is a blob that so many documents and sets have, or had lately.
type text struct {
	is  []byte
	has int
}

func (d *documents) keep(is []byte) (hash string) {
	hash = wire.Hash(is)
	if d.texts[hash] == nil {
		d.texts[hash] = &text{is: is}
	}
	d.texts[hash].has++
	return hash
}

func (d *documents) drop(hashes ...string) {
	for _, hash := range hashes {
		if t := d.texts[hash]; t != nil {
			if t.has--; t.has == 0 {
				delete(d.texts, hash)
			}
		}
	}
}

// text is a blob of those, nil where it is of none.
func (d *documents) text(hash string) []byte {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if t := d.texts[hash]; t != nil {
		return t.is
	}
	return nil
}

// older puts a hash behind those from before, of which the first ones are dropped.
func (d *documents) older(before []string, hash string) []string {
	if hash == "" {
		return before
	}
	before = append(before, hash)
	drop := max(0, len(before)-keptTexts)
	d.drop(before[:drop]...)
	return slices.Clone(before[drop:])
}

// keptTexts is how many texts from before are kept, of which hosts get patches.
const keptTexts = 4

func (d *documents) init() {
	d.texts, d.words = map[string]*text{}, map[string]map[string]bool{}
	d.hosts, d.guests, d.placed, d.moving = map[string]*member{}, map[string]*member{}, map[string]map[string]bool{}, map[string]bool{}
	d.holdings, d.members, d.guestsOf = map[string]*holding{}, map[string]*document{}, map[string]*document{}
	d.pending.hosts, d.pending.guests = map[string]bool{}, map[string]bool{}
}

// changed notes what the next view changes, and has it be the view: nobody follows one without
// the other.
func (d *documents) changed(all bool, hosts, guests []string, set func()) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	defer set()
	d.pending.all = d.pending.all || all
	for _, id := range hosts {
		d.pending.hosts[id] = true
	}
	for _, id := range guests {
		d.pending.guests[id] = true
	}
}

// follow brings the documents up to the view that there is now, and returns it.
func (d *documents) follow(now *atomic.Pointer[view]) (*view, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	v := now.Load()
	p := d.pending
	d.pending.all, d.pending.hosts, d.pending.guests = false, map[string]bool{}, map[string]bool{}
	if p.all {
		for _, of := range []map[string]*member{d.hosts, d.guests} {
			for id := range of {
				p.hosts[id], p.guests[id] = true, true
			}
		}
		for id := range v.hosts {
			p.hosts[id] = true
		}
		for id := range v.guests {
			p.guests[id] = true
		}
	}
	d.was, d.at = d.at.Revision, v.position
	d.pass++
	dirty := map[*holding]bool{}
	change := func(before, after *member) {
		for _, h := range d.holdings {
			if h.change(before, after) {
				dirty[h] = true
			}
		}
	}
	for id := range p.hosts {
		before, after := d.hosts[id], hostMember(v, id)
		if (before == nil) != (after == nil) {
			for guest := range d.placed[id] { // those of a host that is revoked are in no set
				p.guests[guest] = true
			}
		}
		change(before, after)
		put(d.hosts, id, after)
	}
	told := map[string]bool{}
	for id := range p.guests {
		after := guestMember(v, id)
		change(d.guests[id], after)
		put(d.guests, id, after)
		for host, on := range d.placed {
			if on[id] {
				told[host] = true
				delete(on, id)
			}
		}
		delete(d.moving, id)
		g := v.guests[id]
		if g == nil {
			continue
		}
		for _, at := range append(g.Leaving[:len(g.Leaving):len(g.Leaving)], g.Placement) {
			if d.placed[at.Host] == nil {
				d.placed[at.Host] = map[string]bool{}
			}
			d.placed[at.Host][id], told[at.Host] = true, true
		}
		if len(g.Leaving) > 0 {
			d.moving[id] = true
		}
	}
	for h := range dirty {
		d.write(h)
	}
	for host := range told {
		if err := d.guestsAt(v, host); err != nil {
			return v, err
		}
	}
	return v, nil
}

func put(of map[string]*member, id string, m *member) {
	if m == nil {
		delete(of, id)
		return
	}
	of[id] = m
}

// hostMember is nil for a host that is in no set.
func hostMember(v *view, id string) *member {
	h, has := v.hosts[id]
	if !has || !h.Revoked.IsZero() {
		return nil
	}
	return &member{false, named(id, h.Labels), h.Addresses}
}

func guestMember(v *view, id string) *member {
	g := v.guests[id]
	if g == nil || hostMember(v, g.Host) == nil {
		return nil
	}
	return &member{true, g.Labels, g.Addresses}
}

// guestsAt makes the document of a host's guests.
func (d *documents) guestsAt(v *view, host string) error {
	all := trust.Guests{Host: host, Guests: map[string]trust.Guest{}}
	delete(d.words, host)
	taken := map[store.Placement]bool{}
	for id := range d.placed[host] {
		if g := v.guests[id]; g.Host == host {
			taken[g.Placement] = true
		}
	}
	for id := range d.placed[host] {
		g := v.guests[id]
		at := g.Placement
		if at.Host != host {
			at = g.Leaving[slices.IndexFunc(g.Leaving, func(p store.Placement) bool { return p.Host == host })]
			if taken[at] {
				continue // by one that is there to stay
			}
			taken[at] = true
		}
		for word := range wordsOf([]byte(g.Rules)) {
			if d.words[host] == nil {
				d.words[host] = map[string]bool{}
			}
			d.words[host][word] = true
		}
		all.Guests[id] = trust.Guest{Interface: at.Interface, Netns: at.Netns, Addresses: g.Addresses, Public: g.Public, Labels: g.Labels, Rules: g.Rules}
	}
	doc := d.guestsOf[host]
	if doc == nil {
		doc = &document{kind: trust.KindGuests}
		d.guestsOf[host] = doc
	}
	return doc.write(all, nil, d.was)
}

// write makes a document of a payload. Up to a revision it is known to have been what it was.
func (doc *document) write(payload any, sets map[string]trust.Content, until int64) error {
	text, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	content := trust.HashOf(text)
	if content == doc.content {
		return nil
	}
	if doc.content != "" {
		doc.before = append(doc.before[max(0, len(doc.before)-keptVersions+1):], version{doc.content, until, doc.sets})
	}
	doc.payload, doc.content, doc.sets, doc.number = text, content, sets, store.Position{}
	return nil
}

// holding is what a group holds, which is computed where nobody has asked yet.
func (d *documents) holding(g group) *holding {
	h := d.holdings[g.definition]
	if h == nil {
		h = &holding{group: g}
		of := d.hosts
		if g.guests != nil {
			of = d.guests
		}
		for _, m := range of {
			if h.selects(m) {
				for _, a := range m.addresses {
					if g.holds(a) {
						h.all = append(h.all, a)
					}
				}
			}
		}
		sorting.By(h.all, netip.Addr.Compare)
		d.write(h)
		d.holdings[g.definition] = h
	}
	h.pass = d.pass
	return h
}

// membersFor is the document of the sets that are given.
func (d *documents) membersFor(groups []group) (*document, error) {
	key := definitions(groups)
	doc := d.members[key]
	if doc == nil {
		doc = &document{kind: trust.KindMembers}
		d.members[key] = doc
	}
	if doc.content != "" && doc.pass == d.pass {
		return doc, nil
	}
	until := doc.seen
	doc.pass, doc.seen = d.pass, d.at.Revision
	sets := make(map[string]trust.Content, len(groups))
	for _, g := range groups {
		sets[g.name] = d.holding(g).content
	}
	if doc.content != "" && maps.Equal(sets, doc.sets) {
		return doc, nil
	}
	return doc, doc.write(trust.Members{Sets: sets}, sets, until)
}

// forget drops what no host has needed in a pass over all of them.
func (d *documents) forget() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for key, doc := range d.members {
		if doc.pass < d.pass {
			d.drop(append(doc.old, doc.signed)...)
			delete(d.members, key)
		}
	}
	for key, h := range d.holdings {
		if h.pass < d.pass {
			d.drop(append(h.old, h.content.SHA256)...)
			delete(d.holdings, key)
		}
	}
}

// gather tells hosts of members and guests when theirs have become others.
func (c *Controller) gather(ctx context.Context) {
	for {
		select {
		case <-c.regroup:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		err := c.gatherOnce(ctx)
		wait := max(gatherEvery, gatherShare*time.Since(began))
		if err != nil {
			if c.away() == "" {
				c.Note(fmt.Errorf("the members of sets stay as they were: %w", err))
			}
			wait = retryAfter
			c.memberships()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// Hosts are told together of what changes within gatherEvery, and within gatherShare times as
// long as it takes to tell them.
const (
	gatherEvery = 100 * time.Millisecond
	gatherShare = 4
)

// memberships has members and guests looked at soon.
func (c *Controller) memberships() {
	select {
	case c.regroup <- struct{}{}:
	default:
	}
}

func (c *Controller) gatherOnce(ctx context.Context) error {
	v, err := c.documents.follow(&c.view)
	if err != nil {
		return err
	}
	online := c.hub.Online()
	for id := range v.desired {
		k := c.statuses.read(id)
		n, err := c.newsFor(ctx, v, id, k)
		if err != nil {
			return err
		}
		if _, is := online[id]; is && k.told != n.name() {
			c.tell(ctx, id)
		}
	}
	c.documents.forget()
	return c.settleMoved(ctx, v)
}
