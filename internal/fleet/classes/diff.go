package classes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/engine"
	"sluice/internal/fleet/inventory"
	"sluice/internal/prove/query"
)

// Change is what becomes otherwise for hosts that change alike.
type Change struct {
	For   string   // "87 web hosts and 2 db hosts"
	Hosts []string // sorted by class
	*query.Diff
}

// Comparison is what a change of the policy means for a fleet.
type Comparison struct {
	Changes   []Change // the most dangerous first
	Unchanged int      // hosts for which nothing is otherwise
	Joined    []string // hosts that were not there before
	Left      []string // hosts that are not there any more
}

// Opens says whether anything passes on any host that did not pass before.
func (c *Comparison) Opens() bool {
	return slices.ContainsFunc(c.Changes, func(x Change) bool { return x.Opens() })
}

// pair is hosts that are of one class before and of one afterwards.
type pair struct {
	old, next *Class
	hosts     []*inventory.Host // of the later inventory
}

// name is that of the later class, or says which part of it this is.
func (p *pair) name() string {
	if len(p.hosts) == len(p.next.Hosts) {
		return p.next.Name
	}
	if len(p.hosts) == 1 {
		return "host " + p.hosts[0].Name
	}
	return fmt.Sprintf("%d of %s", len(p.hosts), p.next.Name)
}

// Compare says what becomes otherwise where this fleet takes the place of an old one, whose
// hosts have the facts that they have now. Both are in classes. Done is told of each class
// that was compared.
func (f *Fleet) Compare(ctx context.Context, next []*Class, before *Fleet, old []*Class, done func(c *Class)) (*Comparison, error) {
	was := map[string]*Class{}
	for _, c := range old {
		for _, h := range c.Hosts {
			was[h.Name] = c
		}
	}
	out := &Comparison{}
	var pairs []*pair
	at := map[[2]*Class]*pair{}
	for _, c := range next {
		for _, h := range c.Hosts {
			o := was[h.Name]
			if o == nil {
				out.Joined = append(out.Joined, h.Name)
				continue
			}
			delete(was, h.Name)
			p := at[[2]*Class{o, c}]
			if p == nil {
				p = &pair{old: o, next: c}
				at[[2]*Class{o, c}] = p
				pairs = append(pairs, p)
			}
			p.hosts = append(p.hosts, h)
		}
	}
	slices.Sort(out.Joined)
	out.Left = slices.Sorted(maps.Keys(was))
	diffs := make([]*query.Diff, len(pairs))
	same := f.same(before)
	err := f.each(ctx, len(pairs), func(ctx context.Context, i int) error {
		defer done(pairs[i].next)
		if same && slices.Equal(pairs[i].old.Parts, pairs[i].next.Parts) && f.sameTexts(before, pairs[i].next.Parts) && sameGuests(pairs[i]) {
			return nil
		}
		var err error
		diffs[i], err = f.compare(ctx, before, pairs[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, out.join(pairs, diffs)
}

// compare asks about the first host of a pair.
func (f *Fleet) compare(ctx context.Context, before *Fleet, p *pair) (*query.Diff, error) {
	next, err := f.Subject(p.hosts[0])
	if err != nil {
		return nil, err
	}
	old, err := before.Subject(before.Inventory.Host(p.hosts[0].Name))
	if err != nil {
		return nil, err
	}
	sides := map[string]*engine.Subject{"old": old, "next": next}
	d, err := engine.Compare(ctx, f.Sources, next.Facts, func(name string) (*engine.Subject, error) { return sides[name], nil }, "old", "next")
	return d, of(err, p.next)
}

// same says that what is one for all hosts is written alike.
func (f *Fleet) same(before *Fleet) bool {
	return bytes.Equal(f.text(f.Policy.Fleet.File), before.text(before.Policy.Fleet.File)) && reflect.DeepEqual(values(f), values(before))
}

// values are the members of all sets, without their places.
func values(f *Fleet) map[string][]string {
	out := map[string][]string{}
	for name, members := range f.members {
		for _, m := range members {
			out[name] = append(out[name], m.Range.String())
		}
		slices.Sort(out[name])
	}
	return out
}

func (f *Fleet) text(file string) []byte { return f.Policy.Text(file) }

// sameTexts says that parts are written alike, and name no file that may be otherwise.
func (f *Fleet) sameTexts(before *Fleet, parts []string) bool {
	return !slices.ContainsFunc(parts, func(file string) bool {
		return !bytes.Equal(f.text(file), before.text(file)) || bytes.Contains(f.text(file), []byte("file:"))
	})
}

func sameGuests(p *pair) bool {
	return len(p.old.Hosts[0].Guests)+len(p.next.Hosts[0].Guests) == 0
}

// join makes one of changes that are alike in all that is said of them.
func (c *Comparison) join(pairs []*pair, diffs []*query.Diff) error {
	names := map[string][]string{}
	at := map[string]int{}
	var keys []string
	for i, d := range diffs {
		if d == nil || len(d.Changes)+len(d.Settings) == 0 {
			c.Unchanged += len(pairs[i].hosts)
			continue
		}
		key, err := json.Marshal([]any{d.Brief(), d.Settings})
		if err != nil {
			return err
		}
		n, known := at[string(key)]
		if !known {
			n = len(c.Changes)
			at[string(key)] = n
			keys = append(keys, string(key))
			c.Changes = append(c.Changes, Change{Diff: d})
		}
		names[string(key)] = append(names[string(key)], pairs[i].name())
		for _, h := range pairs[i].hosts {
			c.Changes[n].Hosts = append(c.Changes[n].Hosts, h.Name)
		}
	}
	all := c.Unchanged
	for i := range c.Changes {
		all += len(c.Changes[i].Hosts)
	}
	for i := range c.Changes {
		x := &c.Changes[i]
		if x.For = english.Few(names[keys[i]], mostNamed); len(x.Hosts) == all && len(names[keys[i]]) > 1 {
			x.For = "all " + english.Plural(all, "host")
		}
	}
	sorting.StableBy(c.Changes, func(a, b Change) int {
		if a.Opens() != b.Opens() {
			return map[bool]int{true: -1, false: 1}[a.Opens()]
		}
		return len(b.Hosts) - len(a.Hosts)
	})
	return nil
}
