package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// Living is a change of what the fleet bans on this host, and of whom it lets in.
type Living struct {
	Incarnation int64
	Set         []LivingItem // of each ID one
	Lift        []string     // IDs, none of Set
	// Whole says that Set is all of the incarnation with an ID behind From, up to To, of which
	// "" is no bound: what the host has there besides is lifted.
	Whole    bool
	From, To string
}

// LivingItem is a ban, or one who is let in.
type LivingItem struct {
	ID          string
	Allow       bool
	What        addrset.Range
	Service     string    // of an allow; "": all
	Until       time.Time // by the host's clock
	Who, Reason string
}

// Lived is what came of a change.
type Lived struct {
	Refused map[string]string // why, by ID
	// Proved says that the kernel was read, has all that the fleet bans, and asks it.
	Proved bool
}

// living is what State has of bans and allows.
type living struct {
	At wire.Living `json:"at"` // taken up to there
	// Within is of what the bounds were that they were judged by: what the file of the fleet
	// says to hosts, and the host's labels; "": the whole of them is to be judged again.
	Within  string             `json:"within,omitempty"`
	Refused map[string]refused `json:"refused,omitempty"`
}

// refused is why something is not in force, for as long as it would hold.
type refused struct {
	Why   string    `json:"why"`
	Until time.Time `json:"until"`
}

// lives is what a Member does with bans and allows.
type lives struct {
	mu      sync.Mutex
	heard   []*wire.Live
	ask     bool // for what may have been missed
	proved  time.Time
	waiting string
	clock   dbClock
	wake    chan struct{}
	tell    chan struct{}

	file, bounds []byte // the file of the fleet that was read last, and what of it is for hosts
}

// mostHeard is how many messages wait, before the host asks for what they say instead.
const mostHeard = 64

// hear takes what a controller pushes.
func (l *lives) hear(in *wire.Live) {
	l.mu.Lock()
	if len(in.Envelope) == 0 || len(l.heard) == mostHeard {
		l.ask, l.heard = true, nil
	} else {
		l.heard = append(l.heard, in)
	}
	l.mu.Unlock()
	nudge(l.wake)
}

// behind has the host ask for what it may have missed.
func (l *lives) behind() {
	l.mu.Lock()
	l.ask = true
	l.mu.Unlock()
	nudge(l.wake)
}

// sleep takes back that there is something to do now.
func (l *lives) sleep() {
	select {
	case <-l.wake:
	default:
	}
}

// settleWithin is within which time the number up to which bans and allows are taken is
// recorded: what the next agent is told again does no harm.
const settleWithin = 5 * time.Second

// liveAll brings bans and allows into force, until the context ends.
func (m *Member) liveAll(ctx context.Context) {
	again := m.Times.Again
	var retry, settle <-chan time.Time
	var told *wire.LiveApplied
	defer m.settle()
	for {
		select {
		case <-ctx.Done():
			return
		case <-settle:
			settle = nil
			m.settle()
			continue
		case <-m.lives.wake:
		case <-retry:
		}
		retry = nil
		err := m.live(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			again = m.Times.Again
		case errors.Is(err, errNoBundle):
			m.lives.behind()
			m.lives.sleep()
		default:
			m.note(fmt.Errorf("bans and allows of the fleet: %w", err))
			m.lives.behind()
			m.lives.sleep() // and not at once
			retry = time.After(again/2 + jitter(again))
			again = min(2*again, m.Times.Poll)
		}
		m.lives.mu.Lock()
		m.lives.waiting = ""
		if err != nil {
			m.lives.waiting, m.lives.proved = m.short(err), time.Time{}
		}
		m.lives.mu.Unlock()
		if is := m.applied(); !reflect.DeepEqual(is, told) {
			told = is
			nudge(m.lives.tell)
		}
		if settle == nil {
			settle = time.After(settleWithin/2 + jitter(settleWithin/2))
		}
	}
}

// settle records how far it has got with bans and allows.
func (m *Member) settle() {
	m.save()
	if err := m.Trust.Settle(); err != nil {
		m.note(err)
	}
}

// live takes what was heard, or asks for what is missing.
func (m *Member) live(ctx context.Context) error {
	within := m.within()
	m.lives.mu.Lock()
	heard, ask := m.lives.heard, m.lives.ask
	m.lives.heard, m.lives.ask = nil, false
	m.lives.mu.Unlock()
	if within == "" {
		return errNoBundle
	}
	is := m.now().Living
	if is.Within != within || is.At.Incarnation != m.Trust.State().Incarnation {
		return m.wholeOf(ctx, within)
	}
	// What came while the kernel was busy is one change for it.
	var joined trust.Bans
	last := is.At.Seq
	for _, in := range heard {
		b, seq, err := m.open(in.Envelope, time.Time{})
		if err != nil {
			if !errors.Is(err, trust.ErrRolledBack) {
				return err
			}
			continue // it came late
		}
		if b.Whole || b.After > last || m.behindClock(b.Now) {
			ask = true
			break
		}
		for _, e := range b.Entries {
			if e.Seq > last {
				joined.Entries = append(joined.Entries, e)
			}
		}
		last = max(last, seq)
	}
	if err := m.takeLiving(ctx, &joined, last); err != nil {
		return err
	}
	if !ask {
		return m.provedLiving(ctx)
	}
	return m.catchUp(ctx, within, false)
}

// errNoBundle is over when what runs changes, which is heard of.
var errNoBundle = errors.New("no policy of the fleet runs on this host")

// within is what bans and allows are judged by; "" where no bundle runs.
func (m *Member) within() string {
	running := m.Report().Running
	if running == 0 || m.detached() {
		return ""
	}
	text, err := regular.Read(filepath.Join(m.folder(running), "fleet.yaml"), maxState)
	if err != nil {
		return ""
	}
	if m.lives.bounds == nil || !bytes.Equal(text, m.lives.file) { // only liveAll comes here
		m.lives.file, m.lives.bounds = text, boundsOf(text)
	}
	sum := sha256.New()
	sum.Write(m.lives.bounds)
	labels := m.labels()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(sum, "\x00%s\x00%s", name, labels[name])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// boundsOf is the file of a fleet without what is for controllers alone, and without comments.
func boundsOf(file []byte) []byte {
	var says map[string]any
	if yaml.Unmarshal(file, &says) != nil {
		return file
	}
	for _, key := range []string{"roll-out", "access", "approve", "share-bans"} {
		delete(says, key)
	}
	text, err := yaml.Marshal(says)
	if err != nil {
		return file
	}
	return text
}

// behindClock says that a message reports a clock that was set back.
func (m *Member) behindClock(said time.Time) bool {
	m.lives.mu.Lock()
	defer m.lives.mu.Unlock()
	return m.lives.clock.behind(said)
}
