package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"sluice/internal/agent/api"
	"sluice/internal/agent/drift"
	"sluice/internal/agent/due"
	"sluice/internal/agent/fleet"
	"sluice/internal/agent/work"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// followFleet does what the fleet desires for as long as the host is of one. Who enrols,
// leaves or attaches the host again writes files, which are watched.
func (s *space) followFleet() {
	dir := filepath.Join(s.Host.Dir, apply.FleetDir)
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		if err = os.MkdirAll(dir, 0o700); err == nil {
			err = watcher.Add(dir)
		}
	}
	if err != nil {
		s.note(fmt.Errorf("this host cannot be in a fleet: %w", err))
		return
	}
	for s.ctx.Err() == nil {
		ctx, stop := context.WithCancel(s.ctx)
		m, err := s.member(dir)
		if err != nil {
			s.note(fmt.Errorf("the fleet's policy is not followed: %w", err))
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if m != nil {
				s.inFleet.Store(m)
				if err := m.Run(ctx); err != nil {
					s.note(err)
				}
				s.inFleet.Store(nil)
			}
		}()
		s.awaitMembership(watcher, m)
		stop()
		<-ended
	}
}

// awaitMembership waits until the host may be of another fleet.
func (s *space) awaitMembership(watcher *fsnotify.Watcher, m *fleet.Member) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case _ = <-watcher.Errors: //nolint:staticcheck // whichever it is: events were lost
			return
		case e := <-watcher.Events:
			switch filepath.Base(e.Name) {
			case "host.json":
				if is, err := s.Host.Membership(); err == nil && is != nil && m != nil && is.Enrolled.Equal(m.Enrolled) {
					continue // it has other labels, by the fleet's own order
				}
				return
			case "detached.json":
				if m != nil {
					m.Look()
				}
			}
		}
	}
}

// member is the host's half of its fleet; nil where it is of none.
func (s *space) member(dir string) (*fleet.Member, error) {
	is, err := s.Host.Membership()
	if is == nil || err != nil {
		return nil, err
	}
	believed, err := trust.OpenHost(dir)
	if err != nil {
		return nil, err
	}
	e := &fleetEngine{space: s}
	n := &fleet.Network{Dir: dir, Host: is.Host, Trust: believed, Addresses: is.Controllers, Dialer: e.dial}
	if err := n.Open(); err != nil {
		return nil, err
	}
	return &fleet.Member{
		Dir: dir, Host: is.Host, Labels: is.Labels, Enrolled: is.Enrolled, Trust: believed, Controllers: n, Engine: e, Renew: n.Renew, Answers: s.all.answers,
		Relabel: func(labels map[string]string) error {
			is, err := s.Host.Membership()
			if is == nil || err != nil {
				return err
			}
			is.Labels = labels
			return s.Host.KeepMembership(is)
		},
		Level: policy.Level, Version: s.Host.Version, Kernel: host.ThisMachine().Kernel, Backend: s.Host.Backend.Name(), Instance: rand.Text(), Note: s.note, Times: fleet.Usual,
	}, nil
}

// found tells the fleet what the watch over the rules found.
func (s *space) found(findings []apply.Finding) {
	var differs []string
	for _, f := range findings {
		if f.Kind.Restorable() {
			differs = append(differs, f.Text)
		}
	}
	text := strings.Join(differs, "\n")
	if m := s.inFleet.Load(); m != nil {
		m.Found(text)
		return
	}
	is := &text
	if text == "" {
		is = nil
	}
	if was := s.differs.Swap(is); !s.own && (was == nil) != (is == nil) {
		s.all.tellFleet()
	}
}

// fleetEngine is the engine as a fleet has it do its work: by a process for each change, as
// whoever asks by the socket has it.
type fleetEngine struct {
	*space
	judged *engine.Subject // by which bans were judged last; of the goroutine inside of the namespace
	dialed sync.Map        // of netip.Addr: where controllers were reached
	loaded map[string]loadedSpace
}

func (e *fleetEngine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := e.at.Dial(ctx, network, address)
	if err == nil {
		if to, is := c.RemoteAddr().(*net.TCPAddr); is {
			e.dialed.Store(to.AddrPort().Addr().Unmap(), nil)
		}
	}
	return c, err
}

// byFleet is who has changed the firewall.
var byFleet = apply.Author{Via: "fleet"}

func (e *fleetEngine) order(ctx context.Context, operation string, request any, told func(api.Line)) (json.RawMessage, error) {
	defer quieten()
	o := work.Order{Operation: operation, Wait: restoreWait, By: byFleet}
	var err error
	if o.Request, err = json.Marshal(request); err != nil {
		return nil, err
	}
	return work.Run(ctx, e.Command, o, told)
}

// applying is an order to apply a policy of the fleet, of which nobody here reads what it opens
// and closes.
func applying(file string, o api.ChangeOptions) work.Applying {
	return work.Applying{ApplyRequest: api.ApplyRequest{Policy: api.PolicyFile{File: file, Directory: filepath.Dir(file)}, Options: o}, NoMeaning: true}
}

// Apply is Host.Apply. What another change is in the way of, or this agent's end, is no
// refusal.
func (e *fleetEngine) Apply(ctx context.Context, file string, confirm time.Duration, keepEdits bool, checked func()) (*fleet.Applied, error) {
	begun := false
	in := applying(file, api.ChangeOptions{Confirm: confirm.Seconds()})
	in.KeepEdits = keepEdits
	result, err := e.order(ctx, "apply", in, func(l api.Line) {
		if l.Progress != nil && !begun {
			begun = true
			checked()
		}
	})
	var f *api.Failure
	if errors.As(err, &f) && ctx.Err() == nil && f.Kind != api.Busy && f.Kind != api.Ending {
		return nil, &fleet.RefusedError{Why: f.Text}
	}
	if err != nil {
		return nil, err
	}
	var out apply.Outcome
	if err := json.Unmarshal(result, &out); err != nil {
		return nil, err
	}
	return appliedBy(&out), nil
}

// appliedBy says what an apply on trial came to. What changed and is on no trial was kept for its
// edits alone, also where a program that was at the rules meanwhile had all of them read.
func appliedBy(out *apply.Outcome) *fleet.Applied {
	a := &fleet.Applied{Generation: out.Generation, Pending: out.Pending != nil, Proved: out.Edited || out.Proof != nil && out.Proof.Proved}
	if out.Pending != nil {
		a.Until = time.Now().Add(out.Pending.Left())
	} else {
		a.Edited = !out.Unchanged
	}
	return a
}

// Confirm needs no process: it reads and writes little.
func (e *fleetEngine) Confirm(ctx context.Context) error {
	defer quieten()
	h := *e.Host.Host
	h.Wait, h.By, h.Note = restoreWait, byFleet, nil
	return e.at.Do(func() error {
		_, err := h.Confirm(ctx)
		return err
	})
}

func (e *fleetEngine) Rollback(ctx context.Context) error {
	_, err := e.order(ctx, "rollback", api.RollbackRequest{}, func(api.Line) {})
	return err
}

// Restore is what a command does of that name, for whoever asks by the fleet.
func (e *fleetEngine) Restore(ctx context.Context, by string) error {
	author := byFleet
	if err := author.Because("by " + by); err != nil {
		return err
	}
	_, err := worked[*apply.Outcome](ctx, e.space, work.Order{Operation: "restore", Wait: restoreWait, By: author})
	return err
}

func (e *fleetEngine) Now(context.Context) (*fleet.Running, error) {
	var all *apply.History
	err := e.at.Do(func() (err error) {
		all, err = e.Host.History()
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &fleet.Running{Generation: all.Running}
	for _, g := range all.Generations {
		if g.Number != all.Running {
			continue
		}
		out.Mark, out.File = g.Mark, g.In(g.Policy)
	}
	if p := all.Pending; p != nil {
		out.Pending, out.Until = true, time.Now().Add(p.Left())
	}
	return out, nil
}

func (e *fleetEngine) Verify(ctx context.Context) (string, error) {
	v, err := worked[*engine.Verified](ctx, e.space, work.Order{Operation: "verify", Beside: true})
	if err != nil {
		return "", err
	}
	return drift.Differs(v), nil
}

// Facts are without who is logged in, and what changes all the time.
func (e *fleetEngine) Facts(ctx context.Context) (text []byte, err error) {
	defer quieten()
	err = e.at.Do(func() error {
		facts, err := engine.Facts(ctx, e.Host.State, e.Host.Namespace, nil)
		if err != nil {
			return err
		}
		facts.ReadRouting()
		facts.SSHClients, facts.OuterFlows, facts.ConntrackCount = nil, nil, 0
		text, err = json.Marshal(facts)
		return err
	})
	return text, err
}

// TakeLists is Host.Refresh with lists that are given. Whom they would cut is a refusal.
func (e *fleetEngine) TakeLists(ctx context.Context, files map[string]string, allowCut bool) (used []string, err error) {
	in := engine.Refreshing{AllowCut: allowCut}
	for name, file := range files {
		in.Given = append(in.Given, engine.GivenList{Name: name, File: file})
	}
	result, err := e.order(ctx, "takeLists", in, func(api.Line) {})
	var f *api.Failure
	if errors.As(err, &f) && ctx.Err() == nil && f.Kind != api.Busy && f.Kind != api.Ending {
		return nil, &fleet.RefusedError{Why: f.Text}
	}
	if err != nil {
		return nil, err
	}
	var out engine.Refreshed
	if err := json.Unmarshal(result, &out); err != nil {
		return nil, err
	}
	if out.Stopped {
		return nil, &fleet.RefusedError{Why: due.Stopped(&out)}
	}
	for _, l := range out.Lists {
		used = append(used, l.Given)
	}
	return used, nil
}

// Probes are those of the fleet's policy, as it is signed.
func (*fleetEngine) Probes(file string) (all []string, err error) {
	p, err := policy.Load(file)
	if err != nil || p.Fleet == nil {
		return nil, err
	}
	for _, probe := range p.Fleet.RollOut.Probes {
		all = append(all, probe.String())
	}
	return all, nil
}

// Probe asks a service of this host, or of another one, whether it answers: who it is, is no
// matter of a firewall.
func (e *fleetEngine) Probe(ctx context.Context, probe string) error {
	if address, is := strings.CutPrefix(probe, "tcp "); is {
		c, err := e.at.Dial(ctx, "tcp", strings.TrimSpace(address))
		if err == nil {
			err = c.Close()
		}
		return lookupFailed(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, probe, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: e.at.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // see above
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return lookupFailed(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// lookupFailed says that a probe failed before any packet went to what it is about.
func lookupFailed(err error) error {
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Errorf("%s was not looked up, so nothing was asked of it: %w; write its address, or allow dns to the resolver", dns.Name, err)
	}
	return err
}
