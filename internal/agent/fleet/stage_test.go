package fleet

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// stage is a fleet of one host: an operator, a controller in memory, a kernel that only
// remembers what it was given, and a network that a test takes apart. All of it lives by the
// clock of testing/synctest.
type stage struct {
	t          *testing.T
	dir        string // of the host
	policy     trust.Signer
	repository *trust.Repository
	online     *trust.Online
	next       trust.Signing
	blobs      map[string][]byte
	host       *trust.Host
	kernel     *kernel

	mu       sync.Mutex
	desired  wire.Desired
	trusted  wire.Trust
	streams  map[*stream]bool
	reports  []wire.Report
	hellos   []wire.Hello
	enrolled time.Time
	cut      bool     // nothing new connects
	dead     bool     // what is connected does not answer
	tampered bool     // blobs come wrong
	fetched  []string // hashes of blobs, each with that of the blob it may be made of
	log      livingLog
	answers  []wire.Piece
	samples  []wire.Sample
	level    int            // of the controller's protocol
	limited  []netip.Prefix // that the controller was told of
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// play runs a test on a stage, of which the first bundle is signed.
func play(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		f(t, s)
	})
}

func newStage(t *testing.T) *stage {
	t.Helper()
	now := time.Now()
	key := func() trust.PrivateKey { return must(trust.NewKey()) }
	root, policy := key(), key()
	s := &stage{t: t, dir: filepath.Join(t.TempDir(), "fleet"), policy: policy, blobs: map[string][]byte{}, streams: map[*stream]bool{}, level: wire.Level}
	controller := t.TempDir()
	ca, caKey, err := trust.NewCA("example.net", now)
	check(t, err)
	one := func(k trust.PrivateKey) trust.RoleKeys {
		return trust.RoleKeys{Keys: []ed25519.PublicKey{k.Public()}, Threshold: 1}
	}
	founding := trust.Founding{Fleet: "example.net", CA: ca, Root: one(root), Policy: one(policy)}
	for role, keys := range map[string]*[]ed25519.PublicKey{"snapshot": &founding.Snapshot, "timestamp": &founding.Timestamp, "live": &founding.Live} {
		k := key()
		check(t, trust.AddOnlineKey(controller, role, k))
		*keys = []ed25519.PublicKey{k.Public()}
	}
	s.repository, err = trust.Found(t.TempDir(), founding, now, root)
	check(t, err)
	check(t, trust.NewOnline(controller, s.repository.Root()))
	certificate, intermediate, err := trust.NewIntermediate("example.net", ca, caKey, now)
	check(t, err)
	check(t, trust.AddOnlineCA(controller, certificate, intermediate))
	s.online, err = trust.OpenOnline(controller)
	check(t, err)
	s.host, err = trust.NewHost(s.dir, s.repository.Root())
	check(t, err)
	s.next = trust.Signing{Level: 1, File: s.file("fleet.yaml", "version: 1\n")}
	s.kernel = &kernel{stage: s}
	s.sign("one")
	return s
}

// set changes what the controller, the network or the kernel do from now on.
func (s *stage) set(change func()) {
	s.kernel.mu.Lock()
	defer s.kernel.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// last is the report that came last.
func (s *stage) last() wire.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports[len(s.reports)-1]
}

func (s *stage) file(path, text string) trust.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[wire.Hash([]byte(text))] = []byte(text)
	return trust.File{Path: path, SHA256: wire.Hash([]byte(text)), Size: int64(len(text))}
}

// sign signs and publishes a bundle with one part, and gives its number.
func (s *stage) sign(part string) int64 {
	s.t.Helper()
	s.next.Parts = []trust.File{s.file("parts/10-base.yaml", part)}
	signed := must(s.repository.Sign(s.next, time.Now(), s.policy))
	for _, text := range must(s.repository.Manifests()) {
		s.mu.Lock()
		s.blobs[wire.Hash(text)] = text
		s.mu.Unlock()
	}
	s.publish()
	return signed.Bundle.Number
}

func (s *stage) publish() {
	s.t.Helper()
	check(s.t, s.online.Publish(must(s.repository.Metadata()), time.Now()))
	s.freshen()
}

// freshen is what a controller does each hour.
func (s *stage) freshen() {
	m := must(s.online.Refresh("", time.Now()))
	s.mu.Lock()
	s.trusted = wire.Trust{Roots: m.Roots, Timestamp: m.Timestamp, Snapshot: m.Snapshot, Targets: m.Targets}
	s.mu.Unlock()
}

// member starts the host's half, and gives what ends it.
func (s *stage) member() (m *Member, end func()) { return s.prepared(func(*Member) {}) }

// prepared is member, with something set before.
func (s *stage) prepared(set func(*Member)) (m *Member, end func()) {
	ctx, stop := context.WithCancel(context.Background())
	m = &Member{
		Dir: s.dir, Host: "web-1", Labels: map[string]string{"role": "web"}, Enrolled: s.enrolled, Trust: s.host, Controllers: s, Engine: s.kernel,
		Level: 1, Version: "1", Instance: "1", Times: Usual, Note: func(err error) { s.t.Log(err) },
	}
	set(m)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.Run(ctx); err != nil {
			s.t.Error(err)
		}
	}()
	return m, func() { stop(); <-ended }
}

// desire has the controller want something else, and tell of it.
func (s *stage) desire(d wire.Desired) {
	s.mu.Lock()
	d.Order = wire.Order{Incarnation: s.host.State().Incarnation, Revision: s.desired.Order.Revision + 1}
	if d.Order.Incarnation == 0 {
		d.Order.Incarnation = s.online.State().Incarnation
	}
	s.desired = d
	signed := s.trusted
	s.mu.Unlock()
	s.push(&wire.Message{Trust: &signed})
	s.push(&wire.Message{Desired: &d})
}

func (s *stage) push(m *wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for to := range s.streams {
		if !s.dead {
			to.in <- m
		}
	}
}

// await lets time go by until the host reports a state.
func (s *stage) await(want wire.State, within time.Duration) wire.Report {
	s.t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		s.mu.Lock()
		n := len(s.reports)
		var r wire.Report
		if n > 0 {
			r = s.reports[n-1]
		}
		s.mu.Unlock()
		if n > 0 && r.State == want && r.Order == s.desired.Order {
			return r
		}
	}
	s.t.Fatalf("no report of %s: %+v", want, s.reports)
	return wire.Report{}
}

var errCut = errors.New("no route to host")

func (s *stage) way() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return errCut
	}
	return nil
}

func (s *stage) Dial(context.Context) (Stream, error) {
	if err := s.way(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := &stream{stage: s, in: make(chan *wire.Message, 64), over: make(chan struct{})}
	s.streams[to] = true
	return to, nil
}

func (s *stage) Desired(context.Context) (*wire.Desired, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return nil, errCut
	}
	d := s.desired
	return &d, nil
}

func (s *stage) Metadata(context.Context) (*wire.Trust, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return nil, errCut
	}
	t := s.trusted
	return &t, nil
}

func (s *stage) Blob(_ context.Context, hash string, _ int64, from []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched = append(s.fetched, hash+" from "+wire.Hash(from))
	text, there := s.blobs[hash]
	switch {
	case s.cut:
		return nil, errCut
	case !there:
		return nil, &wire.Failure{Text: "there is no such blob", Kind: wire.KindNotFound}
	case s.tampered:
		return append([]byte("#"), text[1:]...), nil
	}
	return text, nil
}

func (s *stage) Reach(context.Context) error { return s.way() }

// stream is one of the controller's.
type stream struct {
	*stage
	in   chan *wire.Message
	once sync.Once
	over chan struct{}
}

func (c *stream) Send(_ context.Context, m *wire.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return nil // into the buffer of a socket
	case m.Hello != nil:
		c.hellos = append(c.hellos, *m.Hello)
		c.reports = append(c.reports, *m.Hello.Report)
		t, d := c.trusted, c.desired
		c.in <- &wire.Message{Trust: &t}
		c.in <- &wire.Message{Desired: &d}
	case m.Report != nil:
		c.reports = append(c.reports, *m.Report)
	case m.LiveApplied != nil:
		c.log.applied = *m.LiveApplied
		c.log.told++
	case m.Sample != nil:
		c.samples = append(c.samples, *m.Sample)
	case m.Answer != nil:
		c.answers = append(c.answers, *m.Answer)
	case m.LimitBans != nil:
		c.limited = append(c.limited, m.LimitBans.What...)
	}
	return nil
}

func (c *stream) Level() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level
}

func (c *stream) Receive(ctx context.Context) (*wire.Message, error) {
	select {
	case m := <-c.in:
		return m, nil
	case <-c.over:
		return nil, errors.New("the stream is over")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *stream) Ping(ctx context.Context) error {
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	if dead {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (c *stream) Cut() {
	c.once.Do(func() {
		c.mu.Lock()
		delete(c.streams, c)
		c.mu.Unlock()
		close(c.over)
	})
}

// kernel is an engine whose watcher rolls back.
type kernel struct {
	stage    *stage
	mu       sync.Mutex
	runs     []string // texts of parts, the running one last
	files    []string
	until    time.Time     // of the last one; zero: it is confirmed
	takes    time.Duration // to load
	verifies time.Duration // what it takes to prove what runs
	refuse   string        // why it takes nothing
	severs   bool          // what it loads cuts the host off for new connections, and with kills for all
	kills    bool
	probes   []string // that its policies ask for
	failed   string   // probe that fails
	differs  string   // from what it was given
	edits    bool     // what is applied is elements of sets
	loaded   int
	restored []string // by whom
	seen     []string // what was applied, whatever happened to it
	limited  limited
	living   livingKernel
	lists    map[string]string // that its policies have, with what they hold; with "cut" in it some are refused
	taken    int               // how often lists were tried
}

func (k *kernel) back() {
	k.runs, k.files, k.until = k.runs[:len(k.runs)-1], k.files[:len(k.files)-1], time.Time{}
	k.stage.mu.Lock()
	k.stage.cut, k.stage.dead = false, false
	k.stage.mu.Unlock()
}

func (k *kernel) Apply(ctx context.Context, file string, confirm time.Duration, keepEdits bool, checked func()) (*Applied, error) {
	part, err := os.ReadFile(filepath.Join(filepath.Dir(file), "parts", "10-base.yaml"))
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	refuse, takes := k.refuse, k.takes
	k.seen = append(k.seen, string(part))
	k.mu.Unlock()
	if refuse != "" {
		return nil, &RefusedError{refuse}
	}
	checked()
	sleep(ctx, takes)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.runs); n > 0 && k.files[n-1] == file && k.runs[n-1] == string(part) && k.until.IsZero() && !(keepEdits && k.edits) {
		return &Applied{Generation: k.loaded}, nil
	}
	k.loaded++
	k.runs, k.files, k.until = append(k.runs, string(part)), append(k.files, file), time.Now().Add(confirm)
	trial := k.loaded
	if keepEdits && k.edits {
		k.until = time.Time{}
		return &Applied{Generation: k.loaded, Edited: true, Proved: true}, nil
	}
	time.AfterFunc(confirm, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.loaded == trial && !k.until.IsZero() {
			k.back()
		}
	})
	k.stage.mu.Lock()
	k.stage.cut, k.stage.dead = k.severs || k.kills, k.kills
	k.stage.mu.Unlock()
	return &Applied{Generation: k.loaded, Pending: true, Until: k.until, Proved: true}, nil
}

func (k *kernel) Confirm(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.until.IsZero() {
		return errors.New("nothing waits for a confirmation")
	}
	k.until = time.Time{}
	return nil
}

func (k *kernel) Rollback(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.back()
	return nil
}

func (k *kernel) Now(context.Context) (*Running, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.runs) == 0 {
		return &Running{}, nil
	}
	return &Running{Generation: k.loaded, File: k.files[len(k.files)-1], Mark: fmt.Sprint("m", k.loaded), Pending: !k.until.IsZero(), Until: k.until}, nil
}

func (k *kernel) Verify(ctx context.Context) (string, error) {
	k.mu.Lock()
	takes, differs := k.verifies, k.differs
	k.mu.Unlock()
	sleep(ctx, takes)
	return differs, nil
}

func (k *kernel) Facts(context.Context) ([]byte, error) { return []byte("{}"), nil }

func (k *kernel) Probes(string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.probes, nil
}

func (k *kernel) Probe(_ context.Context, probe string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed == probe {
		return errors.New("connection refused")
	}
	return nil
}

func (k *kernel) Spaces(context.Context, map[string]Space) (map[string]string, error) {
	return nil, nil
}

func (k *kernel) LeftOut(context.Context, []string) (map[string]string, error) { return nil, nil }

func (k *kernel) Restore(_ context.Context, by string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restored = append(k.restored, by)
	return nil
}

func (k *kernel) TakeLists(_ context.Context, files map[string]string, allowCut bool) (used []string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken++
	next := map[string]string{}
	for name, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(text), "cut") && !allowCut {
			return nil, &RefusedError{"1 live connection would be cut"}
		}
		if _, has := k.lists[name]; has {
			next[name], used = string(text), append(used, name)
		}
	}
	for name, text := range next {
		if k.lists[name] != text {
			k.loaded++
		}
		k.lists[name] = text
	}
	return used, nil
}

// runs is what the kernel does now.
func (s *stage) runs(want string) {
	s.t.Helper()
	s.kernel.mu.Lock()
	defer s.kernel.mu.Unlock()
	got := ""
	if n := len(s.kernel.runs); n > 0 {
		got = s.kernel.runs[n-1]
	}
	if got != want || !s.kernel.until.IsZero() {
		s.t.Fatalf("the kernel does %q (pending until %v), want %q", got, s.kernel.until, want)
	}
}
