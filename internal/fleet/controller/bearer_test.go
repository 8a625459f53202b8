package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// bearer is a host that bears bans: it keeps to what trust and wire say of them, and has a
// map in place of a kernel.
type bearer struct {
	*agent
	conn *wire.Conn

	mutex    sync.Mutex
	at       wire.Living
	holds    map[string]borne  // by ID
	refuses  map[string]string // by what
	waiting  string
	messages int // of live
	asked    int
}

type borne struct {
	trust.Living
	incarnation int64
}

const bansText = "bans: {max: 20, for: 7d, widest: [24, 48]}\nexceptions: {who: [198.51.100.0/24], longest: 8h}\n"

// newBanning is a fleet that bans, with a policy.
func newBanning(t testing.TB) *fleet {
	t.Helper()
	f := newFleet(t, "example.net")
	f.text += bansText
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	return f
}

// bear connects a host, which keeps the bans and allows that it receives until the stream ends.
func (a *agent) bear(has *bearer) *bearer {
	a.Helper()
	if has == nil {
		has = &bearer{holds: map[string]borne{}, refuses: map[string]string{}}
	}
	has.agent = a
	conn, err := wire.Dial(a.Context(), a.client.HTTP, a.client.Base)
	ok(a, err)
	a.Cleanup(conn.Cut)
	has.mutex.Lock()
	at := has.at
	has.mutex.Unlock()
	ok(a, conn.Send(a.Context(), &wire.Message{Hello: &wire.Hello{Version: "1.2", LanguageLevel: 1, Instance: a.instance, Labels: a.labels, Living: &at}}))
	has.conn = conn
	go has.obeyLiving(conn)
	return has
}

func (b *bearer) obeyLiving(conn *wire.Conn) {
	for {
		m, err := conn.Receive(context.Background())
		if err != nil {
			return
		}
		switch {
		case m.Trust != nil:
			if err := b.trust.Update(trust.Metadata{Roots: m.Trust.Roots, Timestamp: m.Trust.Timestamp, Snapshot: m.Trust.Snapshot, Targets: m.Trust.Targets}, time.Now()); err != nil {
				b.Log(b.host, err)
			}
		case m.Live != nil:
			b.mutex.Lock()
			b.messages++
			b.mutex.Unlock()
			if err := b.lives(m.Live); err != nil {
				b.Log(b.host, err)
				continue
			}
			if b.says() != nil {
				return
			}
		}
	}
}

// lives takes what came, and asks for what is missing before it.
func (b *bearer) lives(live *wire.Live) error {
	from, lowest := "", int64(-1)
	for {
		more := live.More
		if len(live.Envelope) == 0 {
			more = true
		} else {
			payload, seq, err := b.trust.Live(trust.KindBans, live.Envelope)
			if err != nil {
				return err
			}
			is, err := trust.ReadBans(payload, seq)
			if err != nil {
				return err
			}
			incarnation := b.trust.State().Incarnation
			b.mutex.Lock()
			switch {
			case is.Whole:
				for id, h := range b.holds {
					if h.incarnation == incarnation && id > is.From && (is.To == "" || id <= is.To) {
						delete(b.holds, id)
					}
				}
				if from = is.To; lowest < 0 || seq < lowest {
					lowest = seq
				}
				if !more { // and what came meanwhile
					b.at, more, from = wire.Living{Incarnation: incarnation, Seq: lowest}, true, ""
				}
			case b.at.Incarnation != incarnation || is.After > b.at.Seq:
				more = true // a gap
			default:
				b.at.Seq = max(b.at.Seq, seq)
			}
			if is.Whole || !more || is.After <= b.at.Seq {
				for _, e := range is.Entries {
					if s, _ := selector.Parse(e.Hosts); e.Hosts != "" && !s.Match(named(b.host, b.labels)) {
						continue
					}
					if delete(b.holds, e.ID); e.Kind == trust.LivingBan || e.Kind == trust.LivingAllow {
						b.holds[e.ID] = borne{e, incarnation}
					}
				}
			}
			b.mutex.Unlock()
		}
		if !more {
			return nil
		}
		b.mutex.Lock()
		at := b.at
		b.asked++
		b.mutex.Unlock()
		var err error
		if live, err = b.client.Living(context.Background(), at, from); err != nil {
			return err
		}
	}
}

func (b *bearer) says() error {
	b.mutex.Lock()
	m := &wire.LiveApplied{Living: b.at, Proved: time.Now(), Waiting: b.waiting}
	for id, h := range b.holds {
		if why := b.refuses[h.What]; why != "" {
			m.Refused = append(m.Refused, wire.NotLive{Id: id, Why: why})
		}
	}
	b.mutex.Unlock()
	return b.conn.Send(context.Background(), &wire.Message{LiveApplied: m})
}

// has is what a host holds, sorted.
func (b *bearer) has() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	var all []string
	for _, h := range b.holds {
		all = append(all, h.What)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (b *bearer) will(have string) {
	b.Helper()
	b.until(b.host+" has "+have, func() bool { return b.has() == have })
}

func banned(t testing.TB, f *fleet, in api.NewHoldings, what ...string) *api.Held {
	t.Helper()
	for _, w := range what {
		in.Entries = append(in.Entries, api.NewHolding{What: w})
	}
	made, err := f.client.Ban(t.Context(), in)
	ok(t, err)
	return made
}

// standing is how many hosts are in which state.
func standing(all []api.HostStanding) string {
	n := map[api.LiveState]int{}
	for _, h := range all {
		n[h.State]++
	}
	var texts []string
	for _, s := range slices.Sorted(maps.Keys(n)) {
		texts = append(texts, fmt.Sprint(s, " ", n[s]))
	}
	return strings.Join(texts, ", ")
}
