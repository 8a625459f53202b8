package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// Controllers is the way to the controllers of the fleet. Whichever of them answers will do.
type Controllers interface {
	Dial(ctx context.Context) (Stream, error)
	Desired(ctx context.Context) (*wire.Desired, error)
	Metadata(ctx context.Context) (*wire.Trust, error)
	// Blob gives what has a hash, of at most so many bytes; from is a blob that is here, or nil.
	Blob(ctx context.Context, hash string, most int64, from []byte) ([]byte, error)
	// Living gives what wire.Client.Living does.
	Living(ctx context.Context, has wire.Living, from string) (*wire.Live, error)
	// Reach says whether a connection that is made now gets an answer.
	Reach(ctx context.Context) error
}

// Stream is wire.Conn.
type Stream interface {
	Send(ctx context.Context, m *wire.Message) error
	Receive(ctx context.Context) (*wire.Message, error)
	Ping(ctx context.Context) error
	Cut()
	// Level is that of the protocol.
	Level() int
}

// Engine brings policies into force, as commands do. A *RefusedError of Apply says that the
// old policy stays, and that the same would be refused again; other errors are tried again.
type Engine interface {
	// Apply loads a policy, which is taken back unless it is confirmed within a time; with
	// keepEdits, it is confirmed at once where no more than elements of living sets change.
	// Checked is called once it compiles and keeps what it is held to.
	Apply(ctx context.Context, file string, confirm time.Duration, keepEdits bool, checked func()) (*Applied, error)
	Confirm(ctx context.Context) error
	// Probes are those that a policy asks for: https URLs, "tcp HOST:PORT", "controller".
	Probes(file string) ([]string, error)
	Rollback(ctx context.Context) error
	// Restore loads once more what runs, whatever others have made of it, since somebody wants it.
	Restore(ctx context.Context, by string) error
	// Now is what should run.
	Now(ctx context.Context) (*Running, error)
	// Verify proves that the kernel does what runs; the text says why not, in packets.
	Verify(ctx context.Context) (differs string, err error)
	// Facts are those of the host, as JSON, without who is logged in.
	Facts(ctx context.Context) ([]byte, error)
	// Spaces brings into force what network namespaces of guests are to have, takes back what
	// others have of the fleet, and says by name why it could not.
	Spaces(ctx context.Context, want map[string]Space) (failed map[string]string, err error)
	// LeftOut says why files of the policies that run, on the host and in network namespaces,
	// are not in force as they are: by their paths in the bundle.
	LeftOut(ctx context.Context, spaces []string) (why map[string]string, err error)
	// Live brings bans and allows into force beside those of the host, within the bounds of the
	// policy that runs. The error is of what is tried again, the whole of it.
	Live(ctx context.Context, change *Living) (*Lived, error)
	// LimitBans are those by limits of this host, where the policy that runs has the fleet
	// share them. What is known is not looked at more closely.
	LimitBans(ctx context.Context, known func(netip.Prefix) bool) ([]LimitBan, error)
	// TakeLists brings files into force as what live lists hold, by the names of the lists,
	// where the policy that runs has them, and says which of them it has. A *RefusedError says
	// that none was taken.
	TakeLists(ctx context.Context, files map[string]string, allowCut bool) (used []string, err error)
	// Probe tries one, except for "controller".
	Probe(ctx context.Context, probe string) error
}

// Applied is what an apply did.
type Applied struct {
	Generation int
	Pending    bool // and how long it has to be confirmed
	Until      time.Time
	Edited     bool // it was confirmed at once, as keepEdits has it
	Proved     bool // the kernel was proved to do it
}

// Running is what should run.
type Running struct {
	Generation int // 0: nothing
	File       string
	Mark       string
	Pending    bool
	Until      time.Time // of what is pending
}

// RefusedError says why a policy cannot be had, whoever asks for it again.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

// Times are the pauses of a Member.
type Times struct {
	Reconnect time.Duration // at most, before a stream is opened again
	Poll      time.Duration // between two questions for what is desired, some more or less
	Ping      time.Duration // between two questions whether a stream lives
	Dead      time.Duration // of a stream that has not answered
	Again     time.Duration // behind what failed and is tried again, doubled up to Poll
	Try       time.Duration // of one probe
	Confirm   time.Duration // where nobody says how long
	Limits    time.Duration // between two looks at what limits have banned
}

// Usual are those of agents.
var Usual = Times{
	Reconnect: 30 * time.Second, Poll: 5 * time.Minute, Ping: 30 * time.Second, Dead: 45 * time.Second,
	Again: 2 * time.Second, Try: 5 * time.Second, Confirm: time.Minute, Limits: 10 * time.Second,
}

// Now is the host's clock. Who tests a host whose clock is wrong sets it before anything of this
// package runs, or those of a Member and its Network.
var Now = time.Now

// Member is a host of a fleet. Its fields are set before Run.
type Member struct {
	Dir         string // fleet/
	Host        string // its id
	Labels      map[string]string
	Enrolled    time.Time // when; what was done before is not its own
	Trust       *trust.Host
	Controllers Controllers
	Engine      Engine
	Level       int // of the policy language that this program knows
	Version     string
	Kernel      string // its release
	Backend     string // by which policies are loaded
	Instance    string // drawn again for each agent
	Note        func(error)
	Times       Times
	Clock       func() time.Time // the host's, by which signatures and certificates are judged; nil: [Now]
	// Answers is the agent's own interface, as far as its file lets the fleet ask it.
	Answers http.Handler
	// Renew is called with each poll, and before a stream is opened.
	Renew func(ctx context.Context) error
	// Relabel records the labels that the host has from now on, instead of Labels.
	Relabel func(labels map[string]string) error

	once       sync.Once
	mu         sync.Mutex
	state      State
	saved      []byte
	stream     Stream // nil: there is none
	end        context.CancelCauseFunc
	aim        aim               // that is pursued; zero: nothing is
	told       time.Time         // when a controller said what is desired
	wake       chan struct{}     // there may be something to pursue
	tell       chan struct{}     // there is something to report
	given      map[string][]byte // blobs that came with what is desired, by hash
	noted      string
	distrusted string        // why what the controller shows is not believed
	untaken    string        // why what it desires is not taken
	unlabelled string        // why the order of labels that it shows is not taken
	soon       chan struct{} // what is not taken is asked for again before the next poll
	spaced     bool          // network namespaces may not be as they should
	running    sync.WaitGroup
	answering  atomic.Int32  // questions
	sample     *wire.Sample  // that is not told yet
	sampled    chan struct{} // there is one
	restores   chan string   // who wants the host to load what runs once more
	undoFiles  func()        // puts back the files of what runs; nil where nothing is brought
	lives      lives
	shares     shares
}

// Run follows the fleet until the context ends.
func (m *Member) Run(ctx context.Context) error {
	m.once.Do(m.begun)
	m.observe(ctx)
	m.running.Go(func() { m.connect(ctx) })
	m.running.Go(func() { m.poll(ctx) })
	m.running.Go(func() { m.liveAll(ctx) })
	m.running.Go(func() { m.restoreAll(ctx) })
	m.pursueAll(ctx)
	m.running.Wait()
	return nil
}

// begun is before all else that a Member does. Who looks at it, or tells it what was found,
// may come before Run.
func (m *Member) begun() {
	m.wake, m.tell, m.soon = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	m.sampled, m.restores = make(chan struct{}, 1), make(chan string, 1)
	m.lives.wake, m.lives.tell = make(chan struct{}, 1), make(chan struct{}, 1)
	m.spaced = true
	if m.Clock == nil {
		m.Clock = Now
	}
	m.load()
}

// note tells an error once.
func (m *Member) note(err error) {
	m.mu.Lock()
	text := err.Error()
	new := text != m.noted
	m.noted = text
	m.mu.Unlock()
	if new && m.Note != nil {
		if f := (*wire.Failure)(nil); errors.As(err, &f) {
			err = said{err}
		}
		m.Note(err)
	}
}

// said is an error with words of a controller, which write no line of their own into a log.
type said struct{ error }

func (s said) Error() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s.error.Error())
}

func (s said) Unwrap() error { return s.error }

// nudge has a loop go round.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one that waits already is enough
	}
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// jitter is any time up to d, so that hosts do not come at once.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d) //nolint:forbidigo,gosec // hosts have to differ, and nobody gains by guessing it
}

// take takes what a controller says is desired, unless it comes late.
func (m *Member) take(d *wire.Desired) {
	if d.Bundle == 0 && m.Trust.State().Incarnation == 0 {
		return // nothing was ever signed, and nothing is desired
	}
	if err := m.outdated(d); err != nil {
		m.note(err)
		m.doubt(&m.untaken, err)
		return
	}
	if err := m.Trust.Accept(d.Order.Incarnation, d.Order.Revision); err != nil {
		if !errors.Is(err, trust.ErrRolledBack) || d.Order.Incarnation != m.Trust.State().Incarnation {
			err = fmt.Errorf("what the controller sent is not taken: %w", err)
			m.note(err)
			if !distrusted(err) {
				m.doubt(&m.untaken, err)
			}
		}
		return
	}
	m.doubt(&m.untaken, nil)
	m.relabel(d.Labels)
	m.mu.Lock()
	before := m.state.Desired
	m.state.Desired, m.told = *d, time.Now()
	m.state.Desired.Blobs = nil
	if len(d.Blobs) > 0 {
		m.given = map[string][]byte{}
		for _, b := range d.Blobs {
			m.given[wire.Hash(b)] = b
		}
	}
	if m.aim != (aim{}) && m.aim != m.state.aimOf(d) {
		m.end(errNewer)
	}
	m.mu.Unlock()
	if before.Order != d.Order {
		m.save()
	}
	nudge(m.wake)
}

// outdated is the error of an order from before the last one that was taken, though the
// controller's revision has come up to that again: its database is an older copy. What has
// been desired since a revision that this host has seen is what was desired then. A bundle that
// nobody signed is none that the fleet desired: who forged that order is gone, and what has been
// desired all the time holds.
func (m *Member) outdated(d *wire.Desired) error {
	m.mu.Lock()
	last := m.state.Desired
	m.mu.Unlock()
	same := d.Bundle == last.Bundle && d.Rollout == last.Rollout
	if same || d.Since == 0 || d.Order.Incarnation != last.Order.Incarnation || d.Since > last.Order.Revision || d.Order.Compare(last.Order) < 0 {
		return nil
	}
	if _, err := m.Trust.Bundle(last.Bundle, m.Level, m.Clock()); errors.Is(err, trust.ErrUnsigned) {
		return nil
	}
	return fmt.Errorf("bundle %d of revision %d is %w: an older copy of the controller's database was put back, and the policy key has to sign a new incarnation", d.Bundle, d.Since, trust.ErrRolledBack)
}

// believe takes what is signed.
func (m *Member) believe(t *wire.Trust) error {
	before := m.Trust.State()
	err := m.Trust.Update(trust.Metadata{Roots: t.Roots, Timestamp: t.Timestamp, Snapshot: t.Snapshot, Targets: t.Targets}, m.Clock())
	if err != nil {
		err = fmt.Errorf("what the controller shows as signed is not taken: %w", err)
	}
	m.doubt(&m.distrusted, err)
	if err != nil {
		return err
	}
	if after := m.Trust.State(); after.TargetsVersion != before.TargetsVersion || after.RootVersion != before.RootVersion {
		nudge(m.wake) // what was refused may be allowed by now
	}
	return nil
}

// doubt reports why nothing new is believed or taken, for as long as that is so: a clock that
// is wrong, or a disk that is full, shows so. Nobody tells the host when it is over, so it is
// asked again soon.
func (m *Member) doubt(about *string, err error) {
	if err != nil {
		nudge(m.soon)
	}
	text := ""
	if err != nil {
		text = m.short(err)
	}
	m.mu.Lock()
	before := *about
	*about = text
	m.mu.Unlock()
	if text == before {
		return
	}
	m.report(func(r *wire.Report) {
		if r.Error == "" || r.Error == before {
			r.Error = text
		}
	})
}

// poll asks for what was pushed, should that have been lost, or not been taken.
func (m *Member) poll(ctx context.Context) {
	for {
		again := time.NewTimer(m.Times.Poll*4/5 + jitter(m.Times.Poll*2/5))
		select {
		case <-ctx.Done():
		case <-again.C:
		case <-m.soon:
			sleep(ctx, m.Times.Reconnect/2+jitter(m.Times.Reconnect/2))
		}
		again.Stop()
		if ctx.Err() != nil {
			return
		}
		asking, stop := context.WithTimeout(ctx, m.Times.Dead)
		if err := m.ask(asking); err != nil && ctx.Err() == nil {
			m.note(err)
		}
		m.renew(asking)
		stop()
		nudge(m.wake)
		nudge(m.tell)
		m.lives.behind()
		nudge(m.lives.tell)
	}
}

// renew sees to the certificate. One that has expired is good for this alone.
func (m *Member) renew(ctx context.Context) {
	if m.Renew == nil {
		return
	}
	if err := m.Renew(ctx); err != nil && ctx.Err() == nil {
		m.note(fmt.Errorf("renew the host's certificate: %w", err))
	}
}

func (m *Member) ask(ctx context.Context) error {
	t, err := m.Controllers.Metadata(ctx)
	if err == nil {
		err = m.believe(t)
	}
	if err != nil {
		return err
	}
	d, err := m.Controllers.Desired(ctx)
	if err != nil {
		return err
	}
	m.take(d)
	return nil
}

// detachedName is the file that says that somebody applied a policy of his own.
const detachedName = "detached.json"

// Look is to be called when the host was detached, or attached again: what was confirmed
// need not be what runs.
func (m *Member) Look() {
	m.once.Do(m.begun)
	m.update(func(s *State) {
		if s.Report.State == wire.StateConfirmed {
			s.Done = aim{}
		}
	})
	nudge(m.wake)
}

func (m *Member) bundles() string { return filepath.Join(m.Dir, "bundles") }
