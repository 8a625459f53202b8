package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"sluice/internal/agent/api"
	"sluice/internal/agent/fleet"
	"sluice/internal/agent/work"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/netns"
)

// loadedSpace is what a network namespace was given last by this agent.
type loadedSpace struct {
	number uint32 // of the namespace, whose name may become another's
	sum    string
	why    string // it refuses it; "": it runs
}

// tellFleet tells the fleet that namespaces have come, gone, or differ.
func (s *spaces) tellFleet() {
	for _, at := range s.all() {
		if m := at.inFleet.Load(); m != nil {
			m.Spaces()
		}
	}
}

// Spaces is of namespaces that the agent's own file names: which these are, no controller says.
func (e *fleetEngine) Spaces(ctx context.Context, want map[string]fleet.Space) (failed map[string]string, err error) {
	failed = map[string]string{}
	if e.loaded == nil {
		e.loaded = map[string]loadedSpace{}
	}
	for name := range e.loaded {
		if want[name].File == "" {
			delete(e.loaded, name)
		}
	}
	for name, at := range e.all.all() {
		if at.own || want[name].File != "" {
			continue
		}
		file, err := runningIn(at)
		if err == nil && e.Host.InBundle(file) {
			_, err = e.orderIn(ctx, at, "remove", nil)
		}
		if err != nil {
			return nil, fmt.Errorf("take back what network namespace %s has of the fleet: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		why, err := e.bringSpace(ctx, name, want[name])
		if err != nil {
			return nil, fmt.Errorf("network namespace %s: %w", name, err)
		}
		if why != "" {
			failed[name] = "network namespace " + name + ": " + why
		}
	}
	return failed, nil
}

// bringSpace brings a policy into force in a namespace, or says why that cannot be. The error
// is of what is to be tried again.
func (e *fleetEngine) bringSpace(ctx context.Context, name string, want fleet.Space) (why string, err error) {
	at, refused := e.all.of(name)
	if at == nil || at.own {
		delete(e.loaded, name)
		if n, err := netns.Named(name); errors.Is(err, fs.ErrNotExist) {
			return "there is none", nil
		} else if err == nil {
			_ = n.Close()
		}
		return cmp.Or(refused, errUnserved).Error(), nil
	}
	is := loadedSpace{number: at.at.Number(), sum: want.Sum}
	was := e.loaded[name]
	if was.number != is.number || was.sum != is.sum {
		file, err := runningIn(at)
		switch {
		case err != nil:
			return "", err
		case file != "" && !e.Host.InBundle(file):
			return "another policy runs there, " + file, nil // until somebody removes it
		}
		result, err := e.orderIn(ctx, at, "apply", applying(want.File, api.ChangeOptions{Keep: true}))
		var f *api.Failure
		var out apply.Outcome
		switch {
		case errors.As(err, &f) && ctx.Err() == nil && at.ctx.Err() == nil && f.Kind != api.Busy && f.Kind != api.Ending:
			is.why = f.Text
		case err != nil:
			return "", err
		default:
			if err := json.Unmarshal(result, &out); err != nil {
				return "", err
			}
			if out.Proof != nil && !out.Proof.Proved {
				is.why = "the kernel is not proved to do what its policy says"
			}
			at.differs.Store(nil)
		}
		e.loaded[name] = is
		was = is
	}
	if differs := at.differs.Load(); was.why == "" && differs != nil {
		return "the kernel does not do what the policy says: " + *differs, nil
	}
	return was.why, nil
}

var errUnserved = errors.New("this host does not serve it: namespaces in the agent's file names those that it does")

// runningIn is the file of the policy that runs in a namespace, "" where none does.
func runningIn(at *space) (string, error) {
	g, err := generationIn(at)
	if g == nil || err != nil {
		return "", err
	}
	return g.In(g.Policy), nil
}

// generationIn is what runs in a namespace, nil where nothing does.
func generationIn(at *space) (*apply.Generation, error) {
	var all *apply.History
	err := at.at.Do(func() (err error) {
		all, err = at.Host.History()
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, g := range all.Generations {
		if g.Number == all.Running {
			return g, nil
		}
	}
	return nil, nil
}

func (e *fleetEngine) orderIn(ctx context.Context, at *space, operation string, request any) (json.RawMessage, error) {
	defer quieten()
	o := work.Order{Operation: operation, Wait: restoreWait, By: byFleet}
	var err error
	if o.Request, err = json.Marshal(request); err != nil {
		return nil, err
	}
	return work.Run(ctx, at.Command, o, func(api.Line) {})
}

// LeftOut is what generations say of their files.
func (e *fleetEngine) LeftOut(_ context.Context, names []string) (map[string]string, error) {
	out := map[string]string{}
	of := []*space{e.space}
	for _, name := range names {
		if at, _ := e.all.of(name); at != nil && !at.own {
			of = append(of, at)
		}
	}
	for _, at := range of {
		g, err := generationIn(at)
		if err != nil {
			return nil, err
		}
		if g == nil {
			continue
		}
		file, err := runningIn(at)
		if err != nil || !e.Host.InBundle(file) {
			continue
		}
		dir := filepath.Dir(file)
		if at != e.space {
			dir = filepath.Dir(dir)
		}
		for _, b := range g.Broken {
			if path, err := filepath.Rel(dir, g.In(b.File)); err == nil {
				out[path] = path + " " + b.Instead() + ": " + b.Errors
			}
		}
	}
	return out, nil
}
