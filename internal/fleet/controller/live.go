package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// Bans go out so soon after the first of them, and later while they keep coming: each batch
// costs a message to each host, a signature that it verifies, and its answer. Where most hosts
// have not answered the batch before, the next one waits so long for them besides, and has more
// in it.
const (
	leastGather = 20 * time.Millisecond
	mostGather  = 500 * time.Millisecond
	mostBehind  = time.Second
	lookBehind  = 100 * time.Millisecond
)

const (
	mostBatch  = 4000 // entries that are read at once
	mostRecent = 4 * mostBatch
	mostID     = 64 // bytes of the ID that a part follows
	// roomOfBans leaves those bytes of trust.MaxBans that are not entries.
	roomOfBans = trust.MaxBans - 1024
	// The whole of what holds is signed in parts, which are given so long to whoever asks, and
	// are so many bytes in all.
	partFor   = 10 * time.Second
	mostParts = 64 << 20
)

// living is the log of bans and allows, as far as hosts are told of it.
type living struct {
	mutex  sync.Mutex
	at     store.Clock
	read   time.Time      // when Now of it was
	recent []trust.Living // the last of the log
	gaps   map[int64]gap  // what a host gets that is at a number, of this one

	building sync.Mutex
	parts    map[string]*part // of the whole, by what they are behind
	size     int
}

type gap struct {
	live    wire.Live
	message []byte
	made    time.Time
}

type part struct {
	live        wire.Live
	incarnation int64
	seq         int64
	made        time.Time
}

// now is the database's. It is called with the mutex.
func (l *living) now() time.Time { return l.at.Now.Add(time.Since(l.read)) }

// clock is now.
func (l *living) clock() time.Time {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.now()
}

// behind is what was told that a host lacks which is at a number; none where it has to be
// given the whole.
func (l *living) behind(after int64) ([]trust.Living, bool) {
	n := l.at.Seq - after
	if n < 0 || n > int64(len(l.recent)) {
		return nil, false
	}
	return l.recent[int64(len(l.recent))-n:], true
}

// reaches says that a host which is at a number needs no whole.
func (l *living) reaches(seq int64) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	_, reaches := l.behind(seq)
	return reaches
}

// live signs what is new in the log, and has all hosts told.
func (c *Controller) live(ctx context.Context) {
	gather := leastGather
	for ctx.Err() == nil {
		c.living.mutex.Lock()
		at := c.living.at
		c.living.mutex.Unlock()
		begun := time.Now()
		err := c.Store.WaitLiving(ctx, at)
		if err == nil {
			gather = min(2*gather, mostGather)
			if time.Since(begun) > gather {
				gather = leastGather
			}
			pause(ctx, gather)
			if gather == mostGather {
				for end := time.Now().Add(mostBehind); time.Now().Before(end) && ctx.Err() == nil && c.applied.behind(c.hub.Online(), at.Seq); {
					pause(ctx, lookBehind)
				}
			}
			err = c.follows(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		c.answered(err)
		if err != nil {
			if c.away() == "" {
				c.Note(fmt.Errorf("hosts are not told of new bans: %w", err))
			}
			pause(ctx, retryAfter)
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, of time.Duration) {
	t := time.NewTimer(of)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// follows reads the log on, and tells hosts of it.
func (c *Controller) follows(ctx context.Context) error {
	l := &c.living
	l.mutex.Lock()
	at := l.at
	l.mutex.Unlock()
	log, err := c.Store.LivingAfter(ctx, at.Seq, mostBatch)
	if err != nil {
		return err
	}
	if log.Whole || log.Incarnation != at.Incarnation {
		if err := c.loadLiving(ctx); err != nil {
			return err
		}
		c.hub.LiveAll(nil)
		return nil
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for len(log.Entries) > 0 {
		n, size := 0, 0
		var some []trust.Living
		for _, e := range log.Entries {
			if size += entrySize(e); n > 0 && size > roomOfBans {
				break
			}
			some = append(some, trust.Living(e))
			n++
		}
		log.Entries = log.Entries[n:]
		_, message, err := c.seal(trust.Bans{After: l.at.Seq, Now: log.Now, Entries: some}, some[n-1].Seq, false)
		if err != nil {
			return err
		}
		l.at.Seq, l.gaps = some[n-1].Seq, map[int64]gap{}
		l.recent = append(l.recent, some...)
		c.hub.LiveAll(message)
	}
	l.recent = l.recent[max(0, len(l.recent)-mostRecent):]
	l.at.Now, l.read = log.Now, time.Now()
	return nil
}

// entrySize is how many bytes an entry takes in a payload, with the comma.
func entrySize(e store.Living) int {
	text, _ := json.Marshal(e) // texts and times, which the store has read from JSON
	return len(text) + 1
}

// seal signs a part of the log, or of the whole.
func (c *Controller) seal(b trust.Bans, seq int64, more bool) (wire.Live, []byte, error) {
	envelope, err := c.online.SignLive(trust.KindBans, seq, b)
	if err != nil {
		return wire.Live{}, nil, err
	}
	live := wire.Live{Envelope: envelope, More: more}
	message, err := wire.Encode(&wire.Message{Live: &live})
	return live, message, err
}

// tellLiving tells a host that has joined what it lacks, and of what comes.
func (c *Controller) tellLiving(host string, has *wire.Living) {
	if has == nil {
		return // it is older than that
	}
	l := &c.living
	l.mutex.Lock()
	defer l.mutex.Unlock()
	g, fits, err := c.gap(*has)
	if err != nil {
		c.Note(err)
	}
	if fits {
		c.hub.Live(host, g.message)
	} else {
		c.hub.Live(host, nil)
	}
}

// gap is what a host lacks of the log, as far as it fits into one message. It is called with
// the mutex.
func (c *Controller) gap(has wire.Living) (gap, bool, error) {
	l := &c.living
	entries, reaches := l.behind(has.Seq)
	if !reaches || has.Incarnation != l.at.Incarnation || has.Incarnation != c.online.State().Incarnation {
		return gap{}, false, nil
	}
	if g, made := l.gaps[has.Seq]; made && time.Since(g.made) < time.Second { // it tells the time
		return g, true, nil
	}
	b := trust.Bans{After: has.Seq, Now: l.now()}
	size := 0
	for _, e := range entries {
		if size += entrySize(store.Living(e)); size > roomOfBans {
			break
		}
		b.Entries = append(b.Entries, e)
	}
	live, message, err := c.seal(b, has.Seq+int64(len(b.Entries)), len(b.Entries) < len(entries))
	if err != nil {
		return gap{}, false, err
	}
	g := gap{live, message, time.Now()}
	l.gaps[has.Seq] = g
	return g, true, nil
}

// lacks answers a host that asks what it lacks.
func (c *Controller) lacks(w http.ResponseWriter, r *http.Request, _ string) {
	q := r.URL.Query()
	var has wire.Living
	var err, wrong error
	has.Incarnation, err = strconv.ParseInt(cmp.Or(q.Get("incarnation"), "0"), 10, 64)
	has.Seq, wrong = strconv.ParseInt(cmp.Or(q.Get("after"), "0"), 10, 64)
	if err = errors.Join(err, wrong); err != nil || has.Check() != nil {
		wire.Fail(w, &wire.Failure{Text: "incarnation and after are numbers", Kind: wire.KindBadRequest})
		return
	}
	from := q.Get("from")
	if len(from) > mostID {
		wire.Fail(w, &wire.Failure{Text: "from is an ID", Kind: wire.KindBadRequest})
		return
	}
	if from == "" {
		c.living.mutex.Lock()
		g, fits, err := c.gap(has)
		c.living.mutex.Unlock()
		if err == nil && fits {
			wire.Answer(w, http.StatusOK, &g.live)
			return
		}
	}
	live, err := c.part(r.Context(), from)
	c.answered(err)
	if err != nil {
		c.fail(w, err)
		return
	}
	wire.Answer(w, http.StatusOK, &live)
}

// part is the whole of what holds, behind an ID, as far as it fits into one message.
func (c *Controller) part(ctx context.Context, from string) (wire.Live, error) {
	l := &c.living
	l.building.Lock()
	defer l.building.Unlock()
	incarnation := c.online.State().Incarnation
	if p := l.parts[from]; p != nil && time.Since(p.made) < partFor && p.incarnation == incarnation && l.reaches(p.seq) {
		return p.live, nil
	}
	at, entries, err := c.Store.Holding(ctx, "", from, mostBatch)
	if err != nil {
		return wire.Live{}, err
	}
	b := trust.Bans{Whole: true, From: from, Now: at.Now}
	size := 0
	for _, e := range entries {
		if size += entrySize(e); size > roomOfBans {
			break
		}
		b.Entries = append(b.Entries, trust.Living(e))
	}
	more := len(b.Entries) == mostBatch || len(b.Entries) < len(entries)
	if more {
		b.To = b.Entries[len(b.Entries)-1].ID
	}
	live, _, err := c.seal(b, at.Seq, more)
	if err != nil {
		return live, err
	}
	if l.size += len(live.Envelope); l.parts == nil || l.size > mostParts {
		l.parts, l.size = map[string]*part{}, len(live.Envelope)
	}
	l.parts[from] = &part{live, incarnation, at.Seq, time.Now()}
	return live, nil
}

// loadLiving reads the end of the log, for hosts that are behind a little.
func (c *Controller) loadLiving(ctx context.Context) error {
	log, err := c.Store.LivingAfter(ctx, 0, 0)
	if err == nil {
		log, err = c.Store.LivingAfter(ctx, max(0, log.Seq-mostBatch), 2*mostBatch)
	}
	if err != nil {
		return err
	}
	l := &c.living
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.at, l.read, l.recent, l.gaps = log.Clock, time.Now(), nil, map[int64]gap{}
	for _, e := range log.Entries {
		l.recent = append(l.recent, trust.Living(e))
	}
	if n := len(l.recent); n > 0 {
		l.at.Seq = l.recent[n-1].Seq
	}
	return nil
}
