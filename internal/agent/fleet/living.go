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
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/regular"
	"sluice/internal/base/selector"
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
	// says to hosts, and the host's labels; "": the whole of them is to be judged anew.
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
// written down: what the next agent is told again does no harm.
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

// settle writes down how far it has got with bans and allows.
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

// behindClock says that a message tells of a clock that was set back.
func (m *Member) behindClock(said time.Time) bool {
	m.lives.mu.Lock()
	defer m.lives.mu.Unlock()
	return m.lives.clock.behind(said)
}

// open believes an envelope, which answers what was asked at a time; zero: nothing was.
func (m *Member) open(envelope []byte, asked time.Time) (*trust.Bans, int64, error) {
	payload, seq, err := m.Trust.Live(trust.KindBans, envelope)
	if err != nil {
		return nil, 0, err
	}
	b, err := trust.ReadBans(payload, seq)
	if err != nil {
		return nil, 0, err
	}
	m.lives.mu.Lock()
	m.lives.clock.hear(b.Now, asked)
	m.lives.mu.Unlock()
	return b, seq, nil
}

// errBehind is over when the controller has come up to its database, or another one is asked.
var errBehind = errors.New("a controller does not know yet what it gave as the whole")

// catchUp asks for what is behind the number that the host has got to, with the whole just now or
// before.
func (m *Member) catchUp(ctx context.Context, within string, whole bool) error {
	for {
		at := m.now().Living.At
		asked := time.Now()
		in, err := m.Controllers.Living(ctx, at, "")
		if err != nil {
			return err
		}
		b, seq, err := m.open(in.Envelope, asked)
		if err != nil {
			return err
		}
		switch {
		case !b.Whole && b.After <= at.Seq:
		case whole:
			return errBehind
		default:
			return m.wholeOf(ctx, within)
		}
		if err := m.takeLiving(ctx, b, seq); err != nil {
			return err
		}
		if !in.More {
			return m.provedLiving(ctx)
		}
	}
}

// wholeOf asks for all that holds, and brings that into force in place of what did.
func (m *Member) wholeOf(ctx context.Context, within string) error {
	lowest := int64(-1)
	for from, more := "", true; more; {
		asked := time.Now()
		in, err := m.Controllers.Living(ctx, wire.Living{}, from)
		if err != nil {
			return err
		}
		b, seq, err := m.open(in.Envelope, asked)
		if err != nil {
			return err
		}
		if !b.Whole { // of a log of which nothing is gone, it is the same
			if b.After != 0 || from != "" {
				return fmt.Errorf("a controller gives no whole: what is after %d", b.After)
			}
			b.Whole, b.After = true, 0
		}
		if from == "" {
			m.lives.mu.Lock()
			m.lives.proved = time.Time{}
			m.lives.mu.Unlock()
			m.edit(func(l *living) { l.Refused = nil })
		}
		if err := m.takeEntries(ctx, b, b.Entries); err != nil {
			return err
		}
		if lowest < 0 || seq < lowest {
			lowest = seq
		}
		if more = in.More; more && b.To <= from {
			return fmt.Errorf("a controller gives no whole: more is behind %q", b.To)
		}
		from = b.To
	}
	m.edit(func(l *living) {
		l.At, l.Within = wire.Living{Incarnation: m.Trust.State().Incarnation, Seq: lowest}, within
	})
	return m.catchUp(ctx, within, true)
}

// edit changes what the state has of bans and allows. It is written down later.
func (m *Member) edit(change func(*living)) {
	m.mu.Lock()
	change(&m.state.Living)
	m.mu.Unlock()
}

// takeLiving brings a part of the log into force.
func (m *Member) takeLiving(ctx context.Context, b *trust.Bans, seq int64) error {
	at := m.now().Living.At.Seq
	if seq <= at {
		return nil
	}
	new := b.Entries
	for len(new) > 0 && new[0].Seq <= at { // they are in order
		new = new[1:]
	}
	if err := m.takeEntries(ctx, b, new); err != nil {
		return err
	}
	m.edit(func(l *living) { l.At.Seq = seq })
	return nil
}

// takeEntries brings entries into force, the last of each ID.
func (m *Member) takeEntries(ctx context.Context, b *trust.Bans, entries []trust.Living) error {
	if len(entries) == 0 && !b.Whole {
		return nil
	}
	change := Living{Incarnation: m.Trust.State().Incarnation, Whole: b.Whole, From: b.From, To: b.To}
	labels := m.labels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels = maps.Clone(labels)
	labels["host"] = m.Host
	last := make(map[string]*trust.Living, len(entries))
	for i := range entries {
		last[entries[i].ID] = &entries[i]
	}
	until := make(map[string]time.Time, len(last))
	change.Set = make([]LivingItem, 0, len(last))
	m.lives.mu.Lock()
	clock := m.lives.clock
	m.lives.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if last[e.ID] != e {
			continue
		}
		is, err := m.item(e, labels, &clock)
		if err != nil {
			return err
		}
		if is == nil {
			change.Lift = append(change.Lift, e.ID)
			continue
		}
		until[e.ID] = is.Until
		change.Set = append(change.Set, *is)
	}
	out, err := m.Engine.Live(ctx, &change)
	if err != nil {
		return err
	}
	m.edit(func(l *living) {
		next := map[string]refused{}
		for id, r := range l.Refused {
			if _, again := last[id]; !again && r.Until.After(m.Clock()) {
				next[id] = r
			}
		}
		for id, why := range out.Refused {
			next[id] = refused{cut(why, mostWhy), until[id]}
		}
		l.Refused = next
	})
	m.wasProved(out.Proved)
	return nil
}

// item is what an entry is for this host; nil where it is lifted, or for others.
func (m *Member) item(e *trust.Living, labels map[string]string, clock *dbClock) (*LivingItem, error) {
	if e.Kind == trust.LivingUnban || e.Kind == trust.LivingDisallow {
		return nil, nil
	}
	if e.Hosts != "" {
		s, err := selector.Parse(e.Hosts)
		if err != nil || !s.Match(labels) {
			return nil, err
		}
	}
	what, err := addrset.ParseRange(e.What)
	if err != nil {
		return nil, err
	}
	left := min(clock.left(e.Expires), e.Expires.Sub(e.Made)) // less, where the database's clock was set back
	return &LivingItem{ID: e.ID, Allow: e.Kind == trust.LivingAllow, What: what, Service: e.Service, Until: m.Clock().Add(left), Who: e.Who, Reason: e.Reason}, nil
}

// provedLiving has the kernel read where it is not known that it has all.
func (m *Member) provedLiving(ctx context.Context) error {
	m.lives.mu.Lock()
	proved := m.lives.proved
	m.lives.mu.Unlock()
	if !proved.IsZero() {
		return nil
	}
	out, err := m.Engine.Live(ctx, &Living{Incarnation: m.Trust.State().Incarnation})
	if err != nil {
		return err
	}
	if !out.Proved {
		return errors.New("the kernel does not have all that the fleet bans")
	}
	m.wasProved(true)
	return nil
}

func (m *Member) wasProved(is bool) {
	m.lives.mu.Lock()
	defer m.lives.mu.Unlock()
	if m.lives.proved = (time.Time{}); is {
		m.lives.proved = m.Clock()
	}
}

const (
	mostWhy     = 250 // bytes of a reason
	mostRefused = 500 // that are told
)

func cut(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// applied is what the controller is told.
func (m *Member) applied() *wire.LiveApplied {
	is := m.now().Living
	m.lives.mu.Lock()
	out := &wire.LiveApplied{Living: is.At, Proved: m.lives.proved, Waiting: cut(m.lives.waiting, 4*mostWhy)}
	m.lives.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(is.Refused)) {
		if r := is.Refused[id]; r.Until.After(m.Clock()) {
			out.Refused = append(out.Refused, wire.NotLive{Id: id, Why: r.Why})
		}
	}
	if n := len(out.Refused); n > mostRefused {
		out.Refused, out.Proved = out.Refused[:mostRefused], time.Time{}
		out.Waiting = fmt.Sprintf("%d of them are refused", n)
	}
	return out
}

// tellLiving tells what the host does of bans and allows, as often as it changes.
func (m *Member) tellLiving(ctx context.Context, s Stream) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.lives.tell:
		}
		if err := m.send(ctx, s, &wire.Message{LiveApplied: m.applied()}); err != nil {
			return err
		}
	}
}
