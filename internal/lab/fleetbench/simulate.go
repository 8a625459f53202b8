package fleetbench

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"sluice"
	agent "sluice/internal/agent/fleet"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// simulation is many hosts in one process.
type simulation struct {
	Order

	token trust.Token
	root  []byte // of the fleet

	lived lived

	mutex    sync.Mutex
	progress Progress
	changed  bool
}

// gcPercent lets the heap of all agents grow: each would have a small one of its own.
const gcPercent = 800

// atOnce is how many hosts enrol at once.
const atOnce = 16

// Simulate is the process of hosts that have no kernel: it reads an Order, and tells
// Progress until its input ends.
func Simulate(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	debug.SetGCPercent(gcPercent)
	s := &simulation{progress: Progress{Confirmed: map[int64]int{}}, lived: lived{of: map[string]*hdrhistogram.Histogram{}}}
	orders := json.NewDecoder(in)
	if err := orders.Decode(&s.Order); err != nil {
		return fmt.Errorf("what to simulate: %w", err)
	}
	if s.token, err = trust.ParseToken(s.Token); err != nil {
		return err
	}
	if s.Profile != "" {
		f, err := os.Create(s.Profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	var members sync.WaitGroup
	defer members.Wait()
	defer stop()
	joining := make(chan error, 1)
	go func() { joining <- s.join(ctx, &members) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-joining:
			if err != nil && ctx.Err() == nil {
				return err
			}
			joining = nil
		case <-tick.C:
			if err := s.tell(out); err != nil {
				return err
			}
		}
	}
}

func (s *simulation) tell(out io.Writer) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.changed {
		return nil
	}
	s.changed = false
	s.progress.Lived = s.lived.all()
	return json.NewEncoder(out).Encode(s.progress)
}

func (s *simulation) change(f func(*Progress)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	f(&s.progress)
	s.changed = true
}

// join enrols all hosts, each of which follows the fleet from then on.
func (s *simulation) join(ctx context.Context, members *sync.WaitGroup) error {
	chain, err := (&wire.Client{HTTP: overTLS(trust.RootTLS()), Base: "https://" + s.Controller}).Roots(ctx)
	if err != nil {
		return err
	}
	if s.root, err = trust.PinnedRoot(chain, s.token.Root); err != nil {
		return err
	}
	enrolling, asking := errgroup.WithContext(ctx)
	enrolling.SetLimit(atOnce)
	for i := range s.Hosts {
		enrolling.Go(func() error {
			m, err := s.enrol(asking, i)
			if err != nil {
				return err
			}
			s.change(func(p *Progress) { p.Enrolled++ })
			members.Go(func() {
				if err := m.Run(ctx); err != nil {
					m.Note(err)
				}
			})
			members.Go(func() { sample(ctx, m) })
			return nil
		})
	}
	return enrolling.Wait()
}

// enrol is what sluice agent enrol does, and the start of the agent.
func (s *simulation) enrol(ctx context.Context, i int) (*agent.Member, error) {
	id := "simulated-" + strconv.Itoa(i)
	dir := filepath.Join(s.Dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	believed, err := trust.NewHost(dir, s.root)
	if err != nil {
		return nil, err
	}
	key, request, err := trust.NewRequest(id)
	if err != nil {
		return nil, err
	}
	client := overTLS(believed.ClientTLS(nil, time.Now))
	defer client.CloseIdleConnections()
	out, err := (&wire.Client{HTTP: client, Base: "https://" + s.Controller}).Enrol(ctx, &wire.Enrol{Secret: s.token.Secret, Host: id, Request: string(request)})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), slices.Concat(key, []byte(out.Certificate)), 0o600); err != nil {
		return nil, err
	}
	n := &agent.Network{Dir: dir, Host: id, Trust: believed, Addresses: []string{s.Controller}, Dialer: (&net.Dialer{}).DialContext}
	if err := n.Open(); err != nil {
		return nil, err
	}
	own := netip.AddrFrom4([4]byte{203, 0, byte(i / 250), byte(1 + i%250)})
	return &agent.Member{
		Dir: dir, Host: id, Labels: s.token.Labels, Trust: believed, Controllers: n, Renew: n.Renew,
		Engine: &engine{simulation: s, facts: bytes.ReplaceAll(s.Facts, []byte(s.Address), []byte(own.String())), draws: mathrand.New(mathrand.NewPCG(s.Seed, uint64(i)))},
		Level:  policy.Level, Version: sluice.Version(), Instance: rand.Text(), Times: agent.Usual, Answers: logs{own},
		Note: func(err error) { s.change(func(p *Progress) { p.Error = id + ": " + err.Error() }) },
	}, nil
}

// overTLS speaks HTTP/1.1 as agents do.
func overTLS(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
}

// engine takes as long as a host with a kernel took.
type engine struct {
	*simulation

	facts    []byte
	mutex    sync.Mutex
	draws    *mathrand.Rand
	running  agent.Running
	before   agent.Running
	took     Took
	confirms int64 // the bundle that was confirmed last
}

// draw is what one of the hosts with a kernel took.
func (e *engine) draw() Took {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.Took[e.draws.IntN(len(e.Took))]
}

func (e *engine) Apply(ctx context.Context, file string, confirm time.Duration, _ bool, checked func()) (*agent.Applied, error) {
	took := e.draw()
	checked()
	if err := wait(ctx, took.Load); err != nil {
		return nil, err
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.before, e.took = e.running, took
	e.running = agent.Running{Generation: e.before.Generation + 1, File: file, Mark: wire.Hash([]byte(file))[:12], Pending: true, Until: time.Now().Add(confirm)}
	return &agent.Applied{Generation: e.running.Generation, Pending: true, Until: e.running.Until, Proved: true}, nil
}

func (e *engine) Confirm(ctx context.Context) error {
	e.mutex.Lock()
	took := e.took.Confirm
	e.mutex.Unlock()
	if err := wait(ctx, took); err != nil {
		return err
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.running.Pending = false
	bundle, err := strconv.ParseInt(filepath.Base(filepath.Dir(e.running.File)), 10, 64)
	if err != nil {
		return err
	}
	e.change(func(p *Progress) {
		p.Confirmed[bundle]++
		if e.confirms != 0 {
			p.Confirmed[e.confirms]--
		}
	})
	e.confirms = bundle
	return nil
}

func (e *engine) Rollback(context.Context) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.running = e.before
	e.change(func(p *Progress) { p.Reverted++ })
	return nil
}

func (e *engine) Now(context.Context) (*agent.Running, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	now := e.running
	return &now, nil
}

func (e *engine) Verify(context.Context) (string, error) { return "", nil }

func (e *engine) Facts(context.Context) ([]byte, error) { return e.facts, nil }

// Live takes as long as a ban took on a host with a kernel.
func (e *engine) Live(ctx context.Context, l *agent.Living) (*agent.Lived, error) {
	if err := wait(ctx, e.draw().Live); err != nil {
		return nil, err
	}
	e.lived.add(l.Set, time.Now())
	e.change(func(*Progress) {})
	return &agent.Lived{Proved: true}, nil
}

func (e *engine) Probe(context.Context, string) error { return nil }

func (*engine) Spaces(context.Context, map[string]agent.Space) (map[string]string, error) {
	return nil, nil
}

func (e *engine) LeftOut(context.Context, []string) (map[string]string, error) { return nil, nil }

func (*engine) Restore(context.Context, string) error { return nil }

func (e *engine) TakeLists(context.Context, map[string]string, bool) ([]string, error) {
	return nil, nil
}

func (e *engine) LimitBans(context.Context, func(netip.Prefix) bool) ([]agent.LimitBan, error) {
	return nil, nil
}

func (e *engine) Probes(string) ([]string, error) { return nil, nil }

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
