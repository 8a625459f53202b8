package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	agent "sluice/internal/agent/fleet"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// host is a host with its kernel, whose agent comes and goes.
type host struct {
	f       *fleet
	id      string
	number  byte // of its address
	dir     string
	network *agent.Network
	link    *link
	kernel  *kernel
	clock   clock

	mutex   sync.Mutex
	ctx     context.Context
	end     context.CancelFunc
	ended   chan struct{}
	reports func() wire.Report
	starts  int
}

// newHost enrols a host, over the network.
func newHost(f *fleet, id string, token trust.Token) *host {
	h := &host{f: f, id: id, number: byte(10 + len(f.hosts)), dir: filepath.Join(memory(f.t), "fleet")}
	h.link = &link{f: f, host: h, streams: map[*stream]bool{}, conns: map[*cable]bool{}}
	h.kernel = &kernel{host: h}
	believed := must(trust.NewHost(h.dir, f.signs.Root()))
	key, request, err := trust.NewRequest(id)
	check(err)
	client := &wire.Client{Base: "https://" + f.seats[0].address(), HTTP: &http.Client{Transport: &http.Transport{
		DialContext: h.link.connect, TLSClientConfig: believed.ClientTLS(nil, time.Now), DisableKeepAlives: true,
	}}}
	ask := &wire.Enrol{Secret: token.Secret, Host: id, Request: string(request)}
	must(client.Enrol(context.Background(), ask)) // whose answer was lost
	out := must(client.Enrol(context.Background(), ask))
	check(os.WriteFile(filepath.Join(h.dir, "key.pem"), append(key, out.Certificate...), 0o600))
	f.history.Add(Event{Kind: Enrolled, Host: id, Token: "t1", Uses: 3, Key: wire.Hash(key)})
	f.history.Add(Event{Kind: Acknowledged, What: "host " + id})
	return h
}

// start begins an agent, the real one unless a bug is planted in agents.
func (h *host) start(ctx context.Context) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.starts++
	h.ctx = ctx
	ctx, h.end = context.WithCancel(ctx)
	h.ended = make(chan struct{})
	ended := h.ended
	believed := must(trust.OpenHost(h.dir))
	h.network = &agent.Network{Dir: h.dir, Host: h.id, Trust: believed, Addresses: h.f.addresses(), Dialer: h.link.connect, Clock: h.clock.now}
	check(h.network.Open())
	run := func(ctx context.Context) error { return (&gullible{host: h}).run(ctx) }
	if !slices.Contains([]planted{lowerRevision, anyBundle, belowFloor}, h.f.bug) {
		m := &agent.Member{
			Dir: h.dir, Host: h.id, Labels: map[string]string{"role": "web"}, Trust: believed, Controllers: h.link, Engine: h.kernel,
			Level: 1, Version: "1", Instance: fmt.Sprint(h.id, h.starts), Times: agent.Usual, Clock: h.clock.now, Note: func(error) {},
		}
		run, h.reports = m.Run, m.Report
	}
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			h.f.t.Error(err)
		}
	}()
}

func (h *host) stop() {
	h.mutex.Lock()
	end, ended := h.end, h.ended
	h.mutex.Unlock()
	end()
	<-ended
}

// restart ends the agent, and starts the next one after a while, in which the kernel does
// what it did.
func (h *host) restart() {
	h.stop()
	h.link.breakAll(nil)
	if h.f.faults() {
		time.Sleep(h.f.upTo(30 * time.Second))
	}
	h.start(h.ctx)
}

// how is how the host is at the end.
func (h *host) how(wants int64) Event {
	e := Event{Kind: Ended, Host: h.id, Bundle: h.kernel.bundle(), Wants: wants}
	if h.excused(wants) {
		e.Wants = e.Bundle
		return e
	}
	if h.reports == nil {
		return e
	}
	r := h.reports()
	switch {
	case r.State != wire.StateConfirmed:
		e.Error = fmt.Sprintf("it is %s: %s", r.State, r.Error)
	case r.Proved.IsZero():
		e.Error = "it is not proved: " + r.Drift
	}
	return e
}

// excused says that a host may run something else than a bundle which it is to run: nobody has
// told it anything since the database was restored, or only just now, or it says why it refuses
// that bundle, and keeps what it had, or that it keeps to what a thief told it.
func (h *host) excused(wants int64) bool {
	h.link.mutex.Lock()
	atIt, lied := h.link.bundle == wants && time.Since(h.link.since) < underWay, h.link.lied
	h.link.mutex.Unlock()
	if wants == 0 || atIt || h.reports == nil {
		return wants == 0 || atIt
	}
	r := h.reports()
	if lied && strings.Contains(r.Error, "the policy key has to sign a new incarnation") {
		return true
	}
	return (r.State == wire.StateRefused || r.State == wire.StateReverted) && r.Bundle == wants
}

// kernel remembers what it was given. What is on trial it takes back by itself.
type kernel struct {
	host *host

	mutex sync.Mutex
	runs  []load // those on trial and confirmed, the running one last
	count int
	until time.Time // of a trial; zero: none
	bans  bans

	lists, listsBefore map[string]string // what they hold
}

type load struct {
	file   string
	bundle int64
	part   string
	number int
	held   map[string]string
}

func (k *kernel) last() load {
	if len(k.runs) == 0 {
		return load{}
	}
	return k.runs[len(k.runs)-1]
}

func (k *kernel) bundle() int64 {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.last().bundle
}

func (k *kernel) event(kind Kind) {
	l := k.last()
	k.host.f.history.Add(Event{Kind: kind, Host: k.host.id, Bundle: l.bundle, Content: wire.Hash([]byte(l.part))})
}

func (k *kernel) back() {
	before := k.last().held
	k.runs, k.until = k.runs[:len(k.runs)-1], time.Time{}
	k.event(WentBack)
	k.carries(before, k.last().held, true)
}

// Apply loads a bundle on trial.
func (k *kernel) Apply(ctx context.Context, file string, confirm time.Duration, _ bool, checked func()) (*agent.Applied, error) {
	bundle, part := partOf(file)
	if is(part, "refused") {
		return nil, &agent.RefusedError{Why: "its expectations do not hold here"}
	}
	of, err := k.read(file)
	if err != nil {
		return nil, err
	}
	checked()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(k.host.f.upTo(2 * time.Second)):
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if !k.until.IsZero() {
		return nil, errors.New("something else is on trial")
	}
	k.count++
	trial := k.count
	before := k.last().held
	k.runs, k.until = append(k.runs, load{file, bundle, part, trial, k.spoil(before, of)}), time.Now().Add(confirm)
	k.event(Enforced)
	k.carries(before, k.last().held, false)
	time.AfterFunc(confirm, func() {
		k.mutex.Lock()
		defer k.mutex.Unlock()
		if k.last().number == trial && !k.until.IsZero() {
			k.back()
		}
	})
	return &agent.Applied{Generation: trial, Pending: true, Until: k.until, Proved: !is(part, "bad")}, nil
}

// read reads a policy as a host does, and refuses what it does not allow.
func (k *kernel) read(file string) (map[string]string, error) {
	if k.host.reports == nil {
		return nil, nil // a gullible one has none
	}
	p, err := policy.Load(file)
	switch {
	case err == nil:
		return held(p), nil
	case k.host.f.bug == anyMembers:
		return unbounded(file), nil
	}
	return nil, &agent.RefusedError{Why: err.Error()}
}

// spoil is the planted bugs of what a host holds of guests.
func (k *kernel) spoil(before, of map[string]string) map[string]string {
	switch k.host.f.bug {
	case keptGuests:
		all := maps.Clone(of)
		for what, content := range before {
			if all[what] == "" && strings.HasPrefix(what, guestWord) {
				all[what] = content
			}
		}
		return all
	case oldGuests:
		if n := len(k.runs); n > 1 && k.host.f.chance(2) {
			return k.runs[n-2].held
		}
	}
	return of
}

// Confirm ends a trial.
func (k *kernel) Confirm(context.Context) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.until.IsZero() {
		return errors.New("nothing is on trial")
	}
	k.until = time.Time{}
	k.event(Final)
	return nil
}

// Rollback ends one too.
func (k *kernel) Rollback(context.Context) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.until.IsZero() {
		return errors.New("nothing is on trial")
	}
	k.back()
	return nil
}

// Now is what should run.
func (k *kernel) Now(context.Context) (*agent.Running, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	l := k.last()
	if l.number == 0 {
		return &agent.Running{}, nil
	}
	return &agent.Running{Generation: l.number, File: l.file, Mark: strconv.Itoa(l.number), Pending: !k.until.IsZero(), Until: k.until}, nil
}

// Verify finds what is bad.
func (k *kernel) Verify(context.Context) (string, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if is(k.last().part, "bad") {
		return "tcp/22 from 192.0.2.1 passes", nil
	}
	return "", nil
}

// Facts are those of every host.
func (k *kernel) Facts(context.Context) ([]byte, error) { return []byte("{}"), nil }

func (k *kernel) Spaces(context.Context, map[string]agent.Space) (map[string]string, error) {
	return nil, nil
}

func (k *kernel) LeftOut(context.Context, []string) (map[string]string, error) { return nil, nil }

// LimitBans are none: no policy here shares them.
func (k *kernel) LimitBans(context.Context, func(netip.Prefix) bool) ([]agent.LimitBan, error) {
	return nil, nil
}

// Probe finds what it asks for.
func (k *kernel) Probe(context.Context, string) error { return nil }

func (k *kernel) Probes(string) ([]string, error) {
	return []string{"controller", "tcp 192.0.2.7:443"}, nil // as fleetFile has it
}

// Desired is what a poll is answered.
func (l *link) Desired(ctx context.Context) (*wire.Desired, error) {
	d, err := l.host.network.Desired(ctx)
	if err == nil {
		l.told(d, false)
	}
	return d, err
}

// Metadata is the same of what is signed.
func (l *link) Metadata(ctx context.Context) (*wire.Trust, error) {
	t, err := l.host.network.Metadata(ctx)
	if err == nil {
		l.heard(t)
	}
	return t, err
}

// Living is what bans and allows are answered.
func (l *link) Living(ctx context.Context, has wire.Living, from string) (*wire.Live, error) {
	return l.host.network.Living(ctx, has, from)
}

// Blob gives another one now and then.
func (l *link) Blob(ctx context.Context, hash string, most int64, from []byte) ([]byte, error) {
	text, err := l.host.network.Blob(ctx, hash, most, from)
	switch {
	case err != nil || !l.f.faults():
	case l.f.chance(10) && len(text) > 0:
		l.f.fault("file altered", l.host)
		return append([]byte("#"), text[1:]...), nil
	case l.f.chance(10):
		l.f.fault("file missing", l.host)
		return nil, errCut
	}
	return text, err
}

// Reach makes a new connection.
func (l *link) Reach(ctx context.Context) error { return l.host.network.Reach(ctx) }

// gullible is an agent without one of the checks that a real one has.
type gullible struct {
	host  *host
	order wire.Order
	runs  int64
}

func (g *gullible) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if s, err := g.host.link.Dial(ctx); err == nil {
			_ = s.Send(ctx, &wire.Message{Hello: &wire.Hello{Version: "1", Instance: g.host.id, LanguageLevel: 1, Report: &wire.Report{Order: g.order, Running: g.runs, Proved: time.Now(), State: wire.StateNone}}})
			for {
				m, err := s.Receive(ctx)
				if err != nil {
					break
				}
				if m.Desired != nil {
					g.take(ctx, s, m.Desired)
				}
			}
			s.Cut()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (g *gullible) take(ctx context.Context, s agent.Stream, d *wire.Desired) {
	f := g.host.f
	if f.bug != lowerRevision && d.Order.Compare(g.order) < 0 || d.Bundle == 0 || d.Bundle == g.runs {
		return
	}
	f.mutex.Lock()
	part, signed := f.texts[d.Bundle]
	floor := f.floor
	f.mutex.Unlock()
	switch {
	case !signed && f.bug == anyBundle:
		part = "what a thief wrote"
	case !signed, d.Bundle < floor && f.bug != belowFloor:
		return
	}
	g.order, g.runs = d.Order, d.Bundle
	dir := filepath.Join(g.host.dir, strconv.FormatInt(d.Bundle, 10))
	check(os.MkdirAll(filepath.Join(dir, "parts"), 0o700))
	check(os.WriteFile(filepath.Join(dir, "parts", "10-base.yaml"), []byte(part), 0o600))
	report := &wire.Report{Order: d.Order, Rollout: d.Rollout, Bundle: d.Bundle, Running: d.Bundle, Proved: time.Now(), State: wire.StateConfirmed}
	if _, err := g.host.kernel.Apply(ctx, filepath.Join(dir, "host.yaml"), 10*time.Second, false, func() {}); err == nil {
		_ = g.host.kernel.Confirm(ctx)
	}
	_ = s.Send(ctx, &wire.Message{Report: report})
}
