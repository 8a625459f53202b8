package controller

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/base/sorting"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
)

// group is a set by hosts or guests, as a bundle defines it.
type group struct {
	name          string
	hosts, guests *selector.Selector
	within        []addrset.Range
	definition    string // the same for groups that hold the same
}

func (g *group) holds(a netip.Addr) bool {
	return slices.ContainsFunc(g.within, func(r addrset.Range) bool { return r.Contains(a) })
}

func groupsOf(p *policy.Policy) (groups []group, err error) {
	for _, s := range p.Groups() {
		g := group{name: s.Name}
		if s.Hosts != nil {
			g.hosts, err = selector.Parse(s.Hosts.Text)
			g.definition = "hosts " + s.Hosts.Text
		} else {
			g.guests, err = selector.Parse(s.Guests.Text)
			g.definition = "guests " + s.Guests.Text
		}
		if err != nil {
			return nil, err
		}
		for _, r := range s.Within {
			g.within = append(g.within, r.Range)
			g.definition += " " + r.Range.String()
		}
		groups = append(groups, g)
	}
	sorting.By(groups, func(a, b group) int { return cmp.Compare(a.name, b.name) })
	return groups, nil
}

// groups are those of a bundle, with what guests may have by it, which never change.
func (c *Controller) groups(ctx context.Context, bundle int64) (groups []group, addresses, public addrset.Set, err error) {
	of, err := c.readContent(ctx, bundle)
	if err != nil {
		return nil, addresses, public, err
	}
	return of.groups, of.addresses, of.public, nil
}

// readContent is what a bundle is made of, its groups and lists too.
func (c *Controller) readContent(ctx context.Context, bundle int64) (*content, error) {
	of, err := c.contents.of(ctx, c.Store, bundle)
	if err != nil {
		return nil, err
	}
	of.mutex.Lock()
	defer of.mutex.Unlock()
	return of, c.readGroups(ctx, of)
}

// readGroups is called with the mutex.
func (c *Controller) readGroups(ctx context.Context, of *content) error {
	if of.read {
		return nil
	}
	p, texts, err := c.policyOf(ctx, &of.manifest)
	if err != nil {
		return err
	}
	if of.groups, err = groupsOf(p); err != nil {
		return err
	}
	if of.lists, err = liveListsOf(p, &of.manifest); err != nil {
		return err
	}
	of.addresses, of.public = p.GuestBounds()
	of.words = map[string]map[string]bool{}
	for path, text := range texts {
		if path == of.manifest.FleetFile.Path {
			text, err = withoutSets(text)
			if err != nil {
				return err
			}
		}
		of.words[path] = wordsOf(text)
	}
	of.unions = map[string][]string{}
	for _, s := range p.Sets {
		for _, w := range slices.Concat(s.Union, s.Except) {
			of.unions[s.Name] = append(of.unions[s.Name], w.Text)
		}
	}
	of.read = true
	return nil
}

// withoutSets is the file of a fleet without what defines its sets.
func withoutSets(text []byte) ([]byte, error) {
	keys := map[string]yaml.Node{}
	if err := yaml.Unmarshal(text, &keys); err != nil {
		return nil, err
	}
	delete(keys, "sets")
	return yaml.Marshal(keys)
}

var word = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_-]*`)

// wordsOf are those of a text, among which is each name that it uses.
func wordsOf(text []byte) map[string]bool {
	all := map[string]bool{}
	for line := range bytes.Lines(text) {
		line, _, _ := bytes.Cut(append([]byte(" "), line...), []byte(" #"))
		for _, w := range word.FindAll(line, -1) {
			all[string(w)] = true
		}
	}
	return all
}

// used are the groups that the files of a host, and the rules of its guests, name: those that the files of others name, it
// is not told of.
func (c *Controller) used(ctx context.Context, v *view, id string, bundle int64) (groups []group, err error) {
	of, err := c.contents.of(ctx, c.Store, bundle)
	if err != nil {
		return nil, err
	}
	class := of.class(v, id)
	c.documents.mutex.Lock()
	words := c.documents.words[id] // a map that nobody changes
	c.documents.mutex.Unlock()
	of.mutex.Lock()
	defer of.mutex.Unlock()
	if groups, known := of.used[class]; known && words == nil {
		return groups, nil
	}
	if err := c.readGroups(ctx, of); err != nil {
		return nil, err
	}
	files, err := of.manifest.Select(id, v.hosts[id].Labels)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if !named[name] {
			named[name] = true
			for _, inner := range of.unions[name] {
				add(inner)
			}
		}
	}
	for _, f := range files {
		for name := range of.words[f.Path] {
			add(name)
		}
	}
	for name := range words {
		add(name)
	}
	for _, g := range of.groups {
		if named[g.name] {
			groups = append(groups, g)
		}
	}
	if words != nil {
		return groups, nil
	}
	if of.used == nil {
		of.used = map[string][]group{}
	}
	of.used[class] = groups
	return groups, nil
}

// holding is what a group holds now.
type holding struct {
	group

	all     []netip.Addr // of all that it selects, in order; one that two have comes twice
	content trust.Content
	old     []string // hashes of what it held before, the newest last
	pass    int64    // in which it was used last
}

// selects says whether a member is of the group.
func (h *holding) selects(m *member) bool {
	switch {
	case m == nil:
		return false
	case m.guest:
		return h.guests != nil && h.guests.Match(m.labels)
	}
	return h.hosts != nil && h.hosts.Match(m.labels)
}

// change puts one in place of another; both may be nil.
func (h *holding) change(before, after *member) (changed bool) {
	if h.selects(before) {
		for _, a := range before.addresses {
			if at, is := slices.BinarySearchFunc(h.all, a, netip.Addr.Compare); is {
				h.all, changed = slices.Delete(h.all, at, at+1), true
			}
		}
	}
	if h.selects(after) {
		for _, a := range after.addresses {
			if h.holds(a) {
				at, _ := slices.BinarySearchFunc(h.all, a, netip.Addr.Compare)
				h.all, changed = slices.Insert(h.all, at, a), true
			}
		}
	}
	return changed
}

// write makes the text of what a group holds.
func (d *documents) write(h *holding) {
	text := trust.AddressText(slices.Compact(slices.Clone(h.all)))
	if hash := trust.HashOf(text); hash != h.content.SHA256 {
		h.old = d.older(h.old, h.content.SHA256)
		h.content = trust.Content{SHA256: d.keep(text), Size: int64(len(text))}
	}
}

// definitions tell documents apart by what is in them.
func definitions(groups []group) string {
	var all strings.Builder
	for _, g := range groups {
		all.WriteString(g.name + "\x00" + g.definition + "\x00")
	}
	return all.String()
}
