package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/base/ring"
	"sluice/internal/engine/apply"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/system/kernel/nflog"
)

// LogQuestion is which of the packets that were logged are asked for.
type LogQuestion struct {
	LogChoice
	Since  time.Time // zero: all that are kept, or with Follow those that come
	Follow bool      // and what comes, until the context ends
	Number uint64    // that one alone; 0: of any
}

// LogAnswer is what came of a LogQuestion beside the packets.
type LogAnswer struct {
	Packets int `json:"packets"` // that were shown
}

// ErrNotKept says that nothing has kept what was logged.
var ErrNotKept = errors.New("nothing has kept what was logged")

// logQueue is how many packets wait to be kept; further ones are lost.
const logQueue = 4096

// OpenLog opens what is logged for whoever keeps it, in at most so many bytes.
func (h *Host) OpenLog(size int64) (*ring.Ring, error) {
	r, err := ring.Open(h.logDir(), size)
	if err != nil {
		return nil, fmt.Errorf("open what was logged: %w", err)
	}
	return r, nil
}

func (h *Host) logDir() string { return filepath.Join(h.Dir, "agent", "log") }

// LogCounts is what happened to the packets that were logged.
type LogCounts struct {
	Kept, Lost atomic.Uint64

	mutex     sync.Mutex
	countries map[string]uint64 // of what was dropped
}

// drops counts a packet that was dropped, by its country.
func (c *LogCounts) drops(l *Logged) {
	if a := actionOf(l.Rule); l.Country == "" || a != policy.Drop && a != policy.Reject {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.countries == nil {
		c.countries = map[string]uint64{}
	}
	c.countries[l.Country]++
}

// dropped is how many were, by country.
func (c *LogCounts) dropped() map[string]uint64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return maps.Clone(c.countries)
}

// KeepLog keeps what is logged until the context ends. What the disk does not take is lost
// and counted, of which told gets the error once, and nil when it takes them again. It is told
// what others removed of the ring, too.
func (h *Host) KeepLog(ctx context.Context, to *ring.Ring, counts *LogCounts, told func(error)) error {
	queue := make(chan nflog.Packet, logQueue)
	ended := make(chan error, 1)
	go func() {
		defer close(queue)
		lost := uint32(0)
		ended <- h.logged(ctx, func() {}, func(p nflog.Packet) {
			p.Lost += lost
			select {
			case queue <- p:
				lost = 0
			default:
				lost = p.Lost + 1
			}
		})
	}()
	lines, countries := lines{host: h}, &freshCountries{host: h}
	// Lost is to be said with the next record; waiting is what is lost where the next flush
	// fails.
	lost, waiting, failing, unwritten := uint32(0), uint32(0), false, uint64(0)
	tell := func(err error) {
		if (err != nil) != failing {
			failing = err != nil
			told(err)
		}
	}
	to.Note = told
	for p := range queue {
		counts.Lost.Add(uint64(p.Lost))
		out := read(p)
		lines.of(&out)
		out.locate(countries.now())
		counts.drops(&out)
		out.Lost += lost
		data, err := json.Marshal(out.short())
		if err == nil {
			_, err = to.Append(data)
		}
		if err != nil {
			lost = out.Lost + 1
			counts.Lost.Add(1)
			tell(err)
			continue
		}
		lost, waiting, unwritten = 0, waiting+out.Lost+1, unwritten+1
		if len(queue) > 0 && !to.Full() {
			continue
		}
		became := &counts.Kept
		if err = to.Flush(); err != nil {
			lost, became = waiting, &counts.Lost
		}
		became.Add(unwritten)
		waiting, unwritten = 0, 0
		tell(err)
	}
	return <-ended
}

// ruleText is how many bytes of a rule are kept with each packet.
const ruleText = 400

// short is the packet as it is kept.
func (l Logged) short() Logged {
	if len(l.Rule) > ruleText {
		l.Rule = strings.ToValidUTF8(l.Rule[:ruleText], "") + "…"
	}
	return l
}

// freshCountries are the country data in use.
type freshCountries struct {
	host   *Host
	data   *geo.Database // nil: they cannot be read
	of     time.Time
	looked time.Time
}

// countriesTime is how often is looked whether there are newer ones.
const countriesTime = time.Minute

func (f *freshCountries) now() *geo.Database {
	if time.Since(f.looked) < countriesTime {
		return f.data
	}
	first := f.looked.IsZero()
	f.looked = time.Now()
	if of := f.host.CountriesUpdated(); first || !of.Equal(f.of) {
		f.of = of
		f.data, _ = geo.Open(f.host.State) // packets are kept without
	}
	return f.data
}

// Log calls seen for the packets that are asked for, the older ones first. What comes is read
// from the kernel itself: where somebody keeps it, ask him, with LogKept.
func (h *Host) Log(ctx context.Context, q LogQuestion, seen func(Logged)) (*LogAnswer, error) {
	out := &LogAnswer{}
	wanted, err := q.of(h)
	if err != nil {
		return out, err
	}
	if !q.Follow || !q.Since.IsZero() {
		if err := h.logKept(ctx, wanted, q, nil, out.count(seen)); err != nil {
			return out, err
		}
	}
	if !q.Follow {
		return out, nil
	}
	if q.Country != "" {
		if _, err := geo.Open(h.State); err != nil {
			return out, err
		}
	}
	lines, countries := lines{host: h}, &freshCountries{host: h}
	seen = wanted.seen(out.count(seen))
	return out, h.logged(ctx, h.noteLogging, func(p nflog.Packet) {
		l := read(p)
		lines.of(&l)
		l.locate(countries.now())
		seen(l)
	})
}

// timeNow is when a packet was logged, by the clock as it is set now.
func timeNow(at time.Time, rec ring.Record) time.Time {
	if by := rec.Time.Sub(rec.Stamped); by.Abs() > time.Second { // somebody set the clock
		return at.Add(by)
	}
	return at
}

// LogKept is Log where somebody keeps what is logged, and closes what grown returns when
// there is more of it.
func (h *Host) LogKept(ctx context.Context, q LogQuestion, grown func() <-chan struct{}, seen func(Logged)) (*LogAnswer, error) {
	out := &LogAnswer{}
	wanted, err := q.of(h)
	if err == nil {
		err = h.logKept(ctx, wanted, q, grown, out.count(seen))
	}
	return out, err
}

func (a *LogAnswer) count(seen func(Logged)) func(Logged) {
	return func(l Logged) {
		a.Packets++
		seen(l)
	}
}

// seen passes on what is wanted. What was lost before packets that are not is told with the
// next that is.
func (c chosen) seen(seen func(Logged)) func(Logged) {
	lost := uint32(0)
	return func(l Logged) {
		lost += l.Lost
		if c.has(&l) {
			l.Lost, lost = lost, 0
			seen(l)
		}
	}
}

// noteLogging says what is to be expected of the policy that runs.
func (h *Host) noteLogging() {
	now, err := h.Lines()
	if err != nil {
		h.warn(wordsOf(err, h.Words)) // packets are shown without lines
		return
	}
	if text := unlogged(now); text != "" {
		h.note(text)
		return
	}
	h.note(fmt.Sprintf("reading what generation %d logs", now.Generation))
}

// unlogged says why no packet comes to the log, and what to do; "" where some do.
func unlogged(now *apply.Lines) string {
	const (
		out  = "; with \"log: netlink\" in it, they and all that a default drops come here"
		live = " (drops can be watched as they happen, without a log)"
	)
	switch {
	case now.Generation == 0:
		return "no policy runs"
	case now.Netlink:
		return ""
	case now.Kernel:
		return "the running policy sends the packets of its lines with log to the kernel log (journalctl -k), not here" + out + live
	}
	return "the running policy logs no packet" + strings.Replace(out, "they and ", "", 1) + live
}

func (h *Host) logKept(ctx context.Context, wanted chosen, q LogQuestion, grown func() <-chan struct{}, seen func(Logged)) error {
	begin := func() (*ring.Reader, error) { return ring.Read(h.logDir(), q.Number) }
	if q.Follow && q.Since.IsZero() {
		begin = func() (*ring.Reader, error) { return ring.Last(h.logDir()) }
	}
	if !q.Follow && q.Number == 0 {
		if now, err := h.Lines(); err == nil && unlogged(now) != "" {
			h.note(unlogged(now))
		}
	}
	in, err := begin()
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotKept
	}
	if err != nil {
		return fmt.Errorf("read what was logged: %w", err)
	}
	defer in.Close()
	if grown != nil && q.Follow {
		h.noteLogging()
	}
	if grown == nil && !ring.Written(h.logDir()) {
		h.note("nobody keeps what is logged now: this is what was kept before")
	}
	seen = wanted.seen(seen)
	// Most of what is kept is of others where one address is asked for: to see that costs less
	// than to read it.
	var source []byte
	if a, err := netip.ParseAddr(q.Source); err == nil {
		source = fmt.Appendf(nil, `"source":%q`, a.Unmap())
	}
	var last, lost uint64
	for ctx.Err() == nil {
		var more <-chan struct{}
		if q.Follow && grown != nil {
			more = grown() // before it is found that there is none
		}
		rec, err := in.Next()
		switch {
		case errors.Is(err, io.EOF) && more == nil:
			return nil
		case errors.Is(err, io.EOF):
			select {
			case <-more:
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return fmt.Errorf("read what was logged: %w", err)
		}
		if q.Number > 0 && rec.ID != q.Number {
			return nil
		}
		if last > 0 {
			lost += rec.ID - last - 1 // damaged, or overwritten before it was read
		}
		last = rec.ID
		if rec.Time.Before(q.Since) {
			lost = 0
			continue
		}
		if source != nil && !bytes.Contains(rec.Data, source) && !bytes.Contains(rec.Data, []byte(`"lost":`)) {
			continue
		}
		var l Logged
		if json.Unmarshal(rec.Data, &l) != nil {
			lost++
			continue
		}
		l.Number, l.Lost, lost = rec.ID, l.Lost+uint32(lost), 0 //nolint:gosec // of what there is room for
		l.Time = timeNow(l.Time, rec)
		seen(l)
	}
	return nil
}
