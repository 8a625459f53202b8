package apply

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// toLoad is the change to a generation as this host can hold it at this moment;
// an empty one for generation 0.
func (s *session) toLoad(ctx context.Context, n int) (change, error) {
	g, artifact, err := s.artifact(n)
	if err != nil || g == nil {
		return change{to: g}, err
	}
	c := change{to: g, artifact: artifact}
	fitted, missing, err := s.fit(ctx, g, artifact)
	if err != nil || len(missing) == 0 {
		return c, err
	}
	encoded, err := fitted.Encode()
	if err != nil {
		return c, fmt.Errorf("encode the rules: %w", err)
	}
	id, parts, err := s.putWhole(encoded)
	if err != nil {
		return c, err
	}
	c.artifact, c.fitted = fitted, &Fitted{Artifact: id, Parts: parts, Missing: missing}
	return c, nil
}

// leftOut says what is missing.
func (f *Fitted) leftOut() error {
	return remedied(SyncOnceUp, fmt.Errorf("left out, since the interface does not exist yet: %s", strings.Join(f.Missing, ", ")))
}

// holdAs records what of a generation the kernel was given.
func (s *session) holdAs(g *Generation, f *Fitted) error {
	if g == nil || g.Fitted.same(f) {
		return nil
	}
	g.Fitted = f
	return s.saveGeneration(g)
}

// held is what the kernel was given of a generation.
func (s *session) held(g *Generation) (backend.Artifact, error) {
	a, err := s.given(g)
	if err != nil {
		return nil, err
	}
	return s.beside(a, s.trialOf(g.Number)), nil
}

func (s *session) given(g *Generation) (backend.Artifact, error) {
	if g.Fitted == nil {
		return s.artifactOf(g)
	}
	as := *g
	as.Artifact = g.Fitted.Artifact
	a, err := s.artifactOf(&as)
	if err == nil {
		return a, nil
	}
	// The disk did not take it, or lost it.
	if a, err = s.artifactOf(g); err == nil {
		a, _, err = s.fit(context.Background(), g, a)
	}
	return a, err
}

// somethingWaits says whether a restore has anything to bring in: an interface
// that was missing is there, or nothing of a policy runs that should. A *LeftError
// says that it cannot be told while rules run, or that a trial has none.
func (s *session) somethingWaits(ctx context.Context) (bool, error) {
	mark, err := s.mark(ctx)
	if err != nil {
		return false, err
	}
	gone := mark == "" || s.lacksSets(ctx, mark)
	switch {
	case s.cur.Pending != nil && gone:
		return false, &LeftError{fmt.Errorf("the rules of generation %d, which waits for confirmation, are not there", s.cur.Pending.Generation)}
	case s.cur.Pending != nil:
		return false, nil
	case s.cur.Running == 0 && s.cur.Lost != "" && !gone:
		return false, &LeftError{errors.New(s.cur.Lost)}
	case s.cur.Running == 0:
		return s.cur.Boot != 0 || s.cur.Lost != "", nil
	case s.cur.Running != s.cur.Boot:
		return false, nil
	}
	g, err := s.generation(s.cur.Running)
	switch {
	case gone:
		return true, nil
	case err != nil:
		return false, &LeftError{err}
	case mark != g.Mark:
		return true, nil
	}
	return g.Fitted != nil && slices.ContainsFunc(g.Fitted.Missing, interfaceThere), nil
}

// lacksSets says that a set which follows the host is not there under a mark: somebody
// took the rules, and left the mark.
func (s *session) lacksSets(ctx context.Context, mark string) bool {
	f, err := s.followed()
	follower, can := s.Backend.(backend.Follower)
	if err != nil || !can || f.Mark != mark {
		return false
	}
	return slices.ContainsFunc(f.Sets, func(set backend.FollowedSet) bool {
		_, err := follower.Holds(ctx, set)
		return errors.Is(err, backend.ErrNotThere)
	})
}

func interfaceThere(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// fit leaves out the devices that are not there, or not yet, and names them: a
// flowtable or a chain at ingress that names one would make the kernel refuse
// the whole. Where all are there, the artifact stays as it was stored.
func (s *session) fit(ctx context.Context, g *Generation, artifact backend.Artifact) (backend.Artifact, []string, error) {
	p, err := s.program(g)
	if err != nil {
		// The artifact alone is enough as long as every device is there.
		s.note("%v", err)
		return artifact, nil, nil
	}
	missing := withoutDevices(p, interfaceThere)
	if len(missing) == 0 {
		return artifact, nil, nil
	}
	// What costs are now is not what they were at the apply.
	same, err := s.BackendOf(g)
	if err != nil {
		return nil, nil, err
	}
	var can backend.Capabilities
	if s.Capabilities != nil {
		can = s.Capabilities(ctx, same)
	}
	if c, is := same.(backend.Chooser); is && g.Choices != nil {
		same = c.Keeping(g.Choices)
	}
	fitted, err := same.Lower(p, can)
	if err != nil {
		return nil, nil, fmt.Errorf("leave out %s: %w", strings.Join(missing, ", "), err)
	}
	return fitted, missing, nil
}

// withoutDevices takes the devices that are not there out of a program, and
// names them. A hook or flowtable that has none left goes, with what used it.
func withoutDevices(p *program.Program, there func(string) bool) []string {
	var missing []string
	keep := func(devices []string) []string {
		return slices.DeleteFunc(slices.Clone(devices), func(d string) bool {
			if there(d) {
				return false
			}
			if !slices.Contains(missing, d) {
				missing = append(missing, d)
			}
			return true
		})
	}
	p.Hooks = slices.DeleteFunc(p.Hooks, func(h program.Hook) bool { return len(h.Devices) > 0 && len(keep(h.Devices)) == 0 })
	for i := range p.Hooks {
		p.Hooks[i].Devices = keep(p.Hooks[i].Devices)
	}
	gone := map[string]bool{}
	p.Flowtables = slices.DeleteFunc(p.Flowtables, func(f program.Flowtable) bool {
		gone[f.Name] = len(f.Devices) > 0 && len(keep(f.Devices)) == 0
		return gone[f.Name]
	})
	for i := range p.Flowtables {
		p.Flowtables[i].Devices = keep(p.Flowtables[i].Devices)
	}
	withoutOffload(p, gone)
	withoutUnused(p)
	slices.Sort(missing)
	return missing
}

// withoutOffload drops the actions that hand flows to flowtables that are gone,
// and the rules that did nothing else.
func withoutOffload(p *program.Program, gone map[string]bool) {
	for i := range p.Chains {
		p.Chains[i].Rules = slices.DeleteFunc(p.Chains[i].Rules, func(r program.Rule) bool {
			return len(r.Actions) > 0 && !slices.ContainsFunc(r.Actions, func(a program.Action) bool { return !isGone(a, gone) })
		})
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			r.Actions = slices.DeleteFunc(slices.Clone(r.Actions), func(a program.Action) bool { return isGone(a, gone) })
		}
	}
}

func isGone(a program.Action, gone map[string]bool) bool {
	return gone[program.EffectOf(a).Flowtable]
}

// withoutUnused drops the chains that no hook and no rule leads to any more.
func withoutUnused(p *program.Program) {
	for {
		used := map[string]bool{}
		for _, h := range p.Hooks {
			used[h.Chain] = true
		}
		for _, c := range p.Chains {
			for _, r := range c.Rules {
				for _, a := range r.Actions {
					for _, chain := range p.Leads(a) {
						used[chain] = true
					}
				}
			}
		}
		before := len(p.Chains)
		p.Chains = slices.DeleteFunc(p.Chains, func(c program.Chain) bool { return !used[c.Name] })
		if len(p.Chains) == before {
			return
		}
	}
}
