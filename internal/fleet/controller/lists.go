package controller

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// liveList is a live list of a bundle.
type liveList struct {
	name    string // of its file in the bundle
	set     string
	url     string
	refresh time.Duration
	within  []addrset.Range // none: it may only ban
	signed  string          // SHA-256 of what was signed
	users   []*selector.Selector
}

// usualRefresh is how often the server of a list is asked that does not say how often.
const usualRefresh = time.Hour

// mostLists is how many live lists a bundle may have: as many as a host is told of.
const mostLists = 64

// used says whether the policy of a host has a list.
func (l *liveList) used(labels map[string]string) bool {
	return slices.ContainsFunc(l.users, func(s *selector.Selector) bool { return s == everyone || s.Match(labels) })
}

// liveListsOf are the live lists of a policy, by name, with the hosts that use them: those of
// whose parts one names the list, or a set that is made of it.
func liveListsOf(p *policy.Policy, m *trust.Manifest) ([]liveList, error) {
	at := map[string]*liveList{}
	signed := map[string]string{}
	for _, f := range m.Lists {
		signed[f.Path] = f.SHA256
	}
	add := func(s *policy.Set) *liveList {
		name := policy.SignedList(s.Name, s.URL.Text)
		l := at[name]
		if l == nil {
			l = &liveList{name: name, set: s.Name, url: s.URL.Text, signed: signed[trust.URLLists+"/"+name]}
			at[name] = l
		}
		if every := max(s.Refresh, 0); every > 0 && (l.refresh == 0 || every < l.refresh) {
			l.refresh = every
		}
		l.within = nil
		for _, r := range s.Within {
			l.within = append(l.within, r.Range)
		}
		return l
	}
	for _, part := range p.Fleet.Parts {
		for _, s := range part.Live {
			l := add(s)
			l.users = append(l.users, part.Selector)
		}
	}
	for _, s := range p.Sets {
		if !s.Live {
			continue
		}
		l := add(s)
		names := madeOf(p, s.Name)
		for _, part := range p.Fleet.Parts {
			if names.Match(p.Text(part.File)) {
				l.users = append(l.users, part.Selector)
			}
		}
		if x := p.Exceptions; x != nil {
			for _, w := range x.Who {
				if slices.ContainsFunc(w.Items, func(i policy.WhoItem) bool { return names.MatchString(i.Name) }) {
					l.users = append(l.users, everyone)
				}
			}
		}
	}
	if len(at) > mostLists {
		return nil, wrong("the policy has %d live lists, and %d is the most", len(at), mostLists)
	}
	var out []liveList
	for _, name := range slices.Sorted(maps.Keys(at)) {
		if at[name].refresh == 0 {
			at[name].refresh = usualRefresh
		}
		out = append(out, *at[name])
	}
	return out, nil
}

// madeOf matches the names of a set of fleet.yaml and of those that are made of it, as words.
// What has such a word in a remark is told of a list that it does not use, which does no harm.
func madeOf(p *policy.Policy, name string) *regexp.Regexp {
	names := map[string]bool{name: true}
	for again := true; again; {
		again = false
		for _, s := range p.Sets {
			if !names[s.Name] && slices.ContainsFunc(slices.Concat(s.Union, s.Except), func(w policy.Word) bool { return names[w.Text] }) {
				names[s.Name], again = true, true
			}
		}
	}
	either := ""
	for _, n := range slices.Sorted(maps.Keys(names)) {
		either += "|" + regexp.QuoteMeta(n)
	}
	return regexp.MustCompile(`(^|[^\w-])(` + either[1:] + `)($|[^\w-])`)
}

// listsOf are the live lists of a bundle, which never change.
func (c *Controller) listsOf(ctx context.Context, bundle int64) ([]liveList, error) {
	if bundle == 0 {
		return nil, nil
	}
	of, err := c.readContent(ctx, bundle)
	if err != nil {
		return nil, err
	}
	return of.lists, nil
}

// keptLists is what the controller does about live lists.
type keptLists struct {
	rows   atomic.Pointer[map[string]store.List]
	wake   chan struct{}
	asks   sync.Mutex        // one asks by command at a time
	plans  sync.Mutex        // and one asks what would change
	signed sync.Map          // envelopes
	lack   func(text string) // what the process that asks is not confined by, told once
}

// row is where a list is.
func (k *keptLists) row(name string) store.List {
	if rows := k.rows.Load(); rows != nil {
		if row, has := (*rows)[name]; has {
			return row
		}
	}
	return store.List{Name: name}
}

// names are those of all lists that are kept.
func (k *keptLists) names() []string {
	if rows := k.rows.Load(); rows != nil {
		return slices.Collect(maps.Keys(*rows))
	}
	return nil
}

// wanted are the live lists of the bundles that hosts are to run, or will be: where several
// have one, it is that of the newest.
func (c *Controller) wantedLists(ctx context.Context, v *view) (map[string]liveList, error) {
	used := map[int64]bool{}
	for _, d := range v.desired {
		used[d.Bundle] = true
	}
	if len(v.bundles) > 0 {
		used[newest(v)] = true
	}
	out := map[string]liveList{}
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(used))) {
		all, err := c.listsOf(ctx, number)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			if newer, has := out[l.name]; has {
				newer.users = append(slices.Clone(newer.users), l.users...)
				l = newer
			}
			out[l.name] = l
		}
	}
	return out, nil
}

// listsFor are the documents of the lists that the policy of a host has, and what tells them
// from others.
func (c *Controller) listsFor(ctx context.Context, v *view, id string, bundle int64) (out []wire.LiveList, name string, err error) {
	all, err := c.listsOf(ctx, bundle)
	if err != nil {
		return nil, "", err
	}
	for _, l := range all {
		row := c.lists.row(l.name)
		if row.SHA256 == "" || !l.used(named(id, v.hosts[id].Labels)) {
			continue
		}
		envelope, err := c.signedList(v, row)
		if err != nil {
			return nil, "", err
		}
		out = append(out, wire.LiveList{Name: l.name, Envelope: envelope})
		name += fmt.Sprint(" ", l.name, " ", row.Revision)
	}
	return out, name, nil
}

// signedList is the document of a list: its number is the revision at which it became this, so
// that all controllers sign the same.
func (c *Controller) signedList(v *view, row store.List) ([]byte, error) {
	key := fmt.Sprint(row.Name, row.Revision, v.position.Incarnation, len(c.trust.Load().Roots))
	if made, has := c.lists.signed.Load(key); has {
		return made.([]byte), nil
	}
	envelope, err := c.online.SignLive(trust.ListKind(row.Name), row.Revision, trust.List{Name: row.Name, SHA256: row.SHA256, Size: row.Size, AllowCut: row.AllowCut})
	if err == nil {
		c.lists.signed.Clear() // of older ones
		c.lists.signed.Store(key, envelope)
	}
	return envelope, err
}

// tellLists tells the hosts whose policy has one of some lists.
func (c *Controller) tellLists(ctx context.Context, v *view, names []string) {
	for id := range c.hub.Online() {
		all, err := c.listsOf(ctx, v.desired[id].Bundle)
		if err != nil {
			c.Note(fmt.Errorf("the live lists of bundle %d are not told: %w", v.desired[id].Bundle, err))
			continue
		}
		if slices.ContainsFunc(all, func(l liveList) bool { return slices.Contains(names, l.name) && l.used(named(id, v.hosts[id].Labels)) }) {
			c.tell(ctx, id)
		}
	}
}

// mayHaveList says whether a blob is what a list holds, or held before, that a host uses.
func (c *Controller) mayHaveList(ctx context.Context, v *view, id, hash string) (bool, error) {
	all, err := c.listsOf(ctx, v.desired[id].Bundle)
	if err != nil {
		return false, err
	}
	for _, l := range all {
		if !l.used(named(id, v.hosts[id].Labels)) {
			continue
		}
		row := c.lists.row(l.name)
		if hash == row.SHA256 || hash == row.Previous {
			return true, nil
		}
	}
	return false, nil
}
