package classes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"sluice/internal/base/sorting"
	"sluice/internal/engine"
	"sluice/internal/fleet/inventory"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
)

// Class is hosts that the policy treats alike.
type Class struct {
	Name  string            `json:"name"`  // "87 web hosts", "host web-1"
	Hosts []*inventory.Host `json:"-"`     // at least one, which is asked for all
	Parts []string          `json:"parts"` // files, in the order in which they join

	*engine.Subject `json:"-"` // of the first host, resolved
}

// group is hosts with the same parts and facts, their addresses apart.
type group struct {
	hosts []*inventory.Host
	parts []string
}

// Classes parts the hosts into classes, in the order of their first hosts. What is wrong with
// the policy of a host keeps its group out and is in the findings.
func (f *Fleet) Classes(ctx context.Context) ([]*Class, []Found, error) {
	groups, found := f.groups()
	split := make([][]*Class, len(groups))
	wrong := make([][]check.Finding, len(groups))
	err := f.each(ctx, len(groups), func(ctx context.Context, i int) error {
		var err error
		split[i], err = f.split(ctx, &groups[i])
		wrong[i], err = engine.Findings(err)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	out := slices.Concat(split...)
	sorting.By(out, func(a, b *Class) int { return strings.Compare(a.Hosts[0].Name, b.Hosts[0].Name) })
	f.name(out)
	for _, w := range f.broken(f.Policy) {
		found = append(found, Found{Finding: w})
	}
	for i, list := range wrong {
		if len(list) == 0 {
			continue
		}
		broken := &Class{Hosts: groups[i].hosts, Parts: groups[i].parts}
		f.name([]*Class{broken})
		for _, w := range list {
			found = append(found, Found{Finding: w, Classes: []*Class{broken}})
		}
	}
	return out, found, nil
}

// each does something for all numbers below n, on as many processors as the fleet may use.
func (f *Fleet) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(cmp.Or(f.processors, runtime.GOMAXPROCS(0)))
	for i := range n {
		work.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return guarded(func() error { return do(ctx, i) })
		})
	}
	return work.Wait()
}

// guarded gives the error of what would end the process: a controller judges what anybody asks.
func guarded(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a bug in Sluice: %v", r)
		}
	}()
	return do()
}

// groups parts the hosts by what can be told without reading their policies, and finds the
// hosts that no part is of, and parts of no host.
func (f *Fleet) groups() ([]group, []Found) {
	var out []group
	var found []Found
	parts := f.Policy.Fleet.Parts
	at, selects := map[string]int{}, make([]bool, len(parts))
	for i := range f.Inventory.Hosts {
		h := &f.Inventory.Hosts[i]
		var files []string
		var key strings.Builder
		labels := h.Selecting()
		for n := range parts {
			ofGuest := func(g policy.Guest) bool { return parts[n].Only.Match(g.Labels) }
			if (parts[n].Selector == nil || parts[n].Selector.Match(labels)) && (parts[n].Only == nil || slices.ContainsFunc(h.Guests, ofGuest)) {
				selects[n] = true
				files = append(files, parts[n].File)
				fmt.Fprintf(&key, "%d ", n)
			}
		}
		about, err := f.factsOf(h)
		if err != nil {
			wrong, _ := engine.Findings(err) // it is of their type
			found = append(found, Found{Finding: wrong[0]})
			continue
		}
		if len(files) == 0 {
			found = append(found, Found{Finding: check.Finding{
				Code: NoPart, Severity: check.Error, Pos: h.Pos, Hint: "write a part without hosts, which applies to every host, or one that selects it",
				Message: fmt.Sprintf("no part applies to host %s, which would be unprotected", h.Name),
			}})
			continue
		}
		key.WriteString(about.outline.text)
		n, known := at[key.String()]
		if !known {
			n = len(out)
			at[key.String()] = n
			out = append(out, group{parts: files})
		}
		out[n].hosts = append(out[n].hosts, h)
	}
	for n, is := range selects {
		if !is {
			e := f.Policy.Errorf(parts[n].Pos, "", "no host has this part")
			found = append(found, Found{Finding: check.Finding{Code: IdlePart, Severity: check.Warning, Pos: e.Pos, Message: e.Message, Line: e.Line, Hint: "fix whom it is for, name such a host in the inventory, or remove the part"}})
		}
	}
	return out, found
}

// split parts a group by the addresses of its hosts.
func (f *Fleet) split(ctx context.Context, g *group) ([]*Class, error) {
	first, err := f.Subject(g.hosts[0])
	if err != nil {
		return nil, err
	}
	if err := first.Resolve(ctx); err != nil {
		return nil, err
	}
	s := symbolsOf(first.Resolved, f.Inventory.File)
	var out []*Class
	at := map[string]*Class{}
	for _, h := range g.hosts {
		about, err := f.factsOf(h)
		if err != nil {
			return nil, err
		}
		key := s.host(&about.outline) + "|" + s.guests(h.Guests)
		c := at[key]
		if c == nil {
			c = &Class{Parts: g.parts}
			at[key] = c
			out = append(out, c)
		}
		c.Hosts = append(c.Hosts, h)
	}
	for i, c := range out {
		if c.Subject = first; i == 0 {
			continue
		}
		if c.Subject, err = f.Subject(c.Hosts[0]); err != nil {
			return nil, err
		}
		if err := c.Resolve(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// of says whose an error is.
func of(err error, c *Class) error {
	var wrong policy.Errors
	if err == nil || errors.As(err, &wrong) {
		return err
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

// Each does something for each class, on as many processors as the fleet may use.
func (f *Fleet) Each(ctx context.Context, list []*Class, do func(ctx context.Context, c *Class) error) error {
	return f.each(ctx, len(list), func(ctx context.Context, i int) error { return do(ctx, list[i]) })
}
