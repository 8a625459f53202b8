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

// ClosedError says that the confirmed policy could not be loaded, and what
// stands instead.
type ClosedError struct {
	Cause error
	Ports []uint16 // that ssh is open at
	Err   error    // where even the closed policy could not be loaded
}

func (e *ClosedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the confirmed policy cannot be loaded: %v\n  the closed policy cannot either: %v\n  the host is NOT protected\n  hint: apply a policy", e.Cause, e.Err)
	}
	ports := strings.Trim(fmt.Sprint(e.Ports), "[]")
	return fmt.Sprintf("the confirmed policy cannot be loaded: %v\n  the host is closed, with ssh open at port %s\n  hint: apply a policy, or sluice rollback to a generation of sluice history", e.Cause, ports)
}

func (e *ClosedError) Unwrap() error { return e.Cause }

// Restoring is what a restore needs to know of the host.
type Restoring struct {
	SSHPorts     []uint16 // where ssh is managed now; those of the generation and port 22 are added
	Capabilities func(context.Context) backend.Capabilities
}

func (r *Restoring) addPorts(ports ...uint16) {
	for _, p := range ports {
		if !slices.Contains(r.SSHPorts, p) {
			r.SSHPorts = append(r.SSHPorts, p)
		}
	}
	slices.Sort(r.SSHPorts)
}

// Restore loads the last confirmed generation: at boot, and after somebody took
// the rules away. When it cannot, the host is closed but for ssh; the error is
// then a *ClosedError.
func (h *Host) Restore(ctx context.Context, r Restoring) (*Outcome, error) {
	r.addPorts(22)
	s, err := h.openUnsettled(ctx)
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		return nil, err
	case err != nil:
		return nil, h.closeBlind(ctx, r, err)
	}
	defer s.close()
	if err := s.settle(ctx); err != nil {
		s.note("%v", err)
	}
	if s.cur.Boot == 0 {
		s.note("no policy was ever confirmed: nothing is loaded")
		return &Outcome{Generation: s.cur.Running, Unchanged: true}, nil
	}
	pending := s.cur.Pending
	out := &Outcome{}
	if g, err := s.generation(s.cur.Boot); err == nil {
		r.addPorts(g.SSHPorts...)
	}
	g, artifact, err := s.artifact(s.cur.Boot)
	if err == nil {
		artifact, out.Notes, err = s.fit(ctx, g, artifact, r)
	}
	if err == nil {
		err = s.change(ctx, change{what: restored, to: g, artifact: artifact})
	}
	if err != nil {
		return nil, s.closeHost(ctx, r, err)
	}
	disarm(pending)
	out.Generation = g.Number
	return out, s.verify(ctx, change{artifact: artifact, verify: true})
}

// fit leaves out the devices that are not there, or not yet: a flowtable or a
// chain at ingress that names one would make the kernel refuse the whole. Where
// all are there, the artifact stays as it was stored.
func (s *session) fit(ctx context.Context, g *Generation, artifact backend.Artifact, r Restoring) (backend.Artifact, []string, error) {
	p, err := s.program(g)
	if err != nil {
		// The artifact alone is enough as long as every device is there.
		s.note("%v", err)
		p = &program.Program{}
	}
	missing := withoutDevices(p, func(name string) bool {
		_, err := net.InterfaceByName(name)
		return err == nil
	})
	if len(missing) == 0 {
		return artifact, nil, nil
	}
	var can backend.Capabilities
	if r.Capabilities != nil {
		can = r.Capabilities(ctx)
	}
	fitted, err := s.Backend.Lower(p, can)
	if err != nil {
		return nil, nil, fmt.Errorf("leave out %s: %w", strings.Join(missing, ", "), err)
	}
	return fitted, []string{fmt.Sprintf("left out, since there is no such interface yet: %s; apply again once it is up", strings.Join(missing, ", "))}, nil
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
	offload, is := a.(program.Offload)
	return is && gone[offload.Flowtable]
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
					switch a := a.(type) {
					case program.Jump:
						used[a.Chain] = true
					case program.Goto:
						used[a.Chain] = true
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

// closeHost loads the closed policy as a generation that can never boot.
func (s *session) closeHost(ctx context.Context, r Restoring, cause error) error {
	e := &ClosedError{Cause: cause, Ports: r.SSHPorts}
	p := closedProgram(s.Namespace, r.SSHPorts)
	artifact, err := s.Backend.Lower(p, nil)
	if err == nil {
		err = s.closeWritten(ctx, p, artifact)
		if err != nil {
			// A state that cannot be written must not leave the host open.
			err = s.closeUnwritten(ctx, artifact)
		}
	}
	e.Err = err
	s.shout("%v", e)
	return e
}

func (s *session) closeWritten(ctx context.Context, p *program.Program, artifact backend.Artifact) error {
	encoded, err := artifact.Encode()
	if err != nil {
		return err
	}
	g, err := s.write(Input{Policy: "closed", Program: p, Artifact: artifact}, encoded)
	if err != nil {
		return err
	}
	g.Closed = true
	if err := s.saveGeneration(g); err != nil {
		return err
	}
	return s.change(ctx, change{what: applied, to: g, artifact: artifact, isNew: true})
}

// closeBlind loads the closed policy where the state cannot be used at all.
func (h *Host) closeBlind(ctx context.Context, r Restoring, cause error) error {
	e := &ClosedError{Cause: cause, Ports: r.SSHPorts}
	artifact, err := h.Backend.Lower(closedProgram(h.Namespace, r.SSHPorts), nil)
	if err == nil {
		err = h.closeUnwritten(ctx, artifact)
	}
	e.Err = err
	h.shout("%v", e)
	return e
}

func (h *Host) closeUnwritten(ctx context.Context, artifact backend.Artifact) error {
	have, err := h.Backend.Read(ctx, true)
	if err != nil {
		return err
	}
	steps, err := h.Backend.Steps(artifact, have)
	if err != nil {
		return err
	}
	for _, step := range withMark(steps, newMark(0)) {
		if step.Purpose == backend.Hold {
			continue
		}
		if err := h.Kernel.Run(ctx, step.Text); err != nil {
			return err
		}
	}
	return nil
}
