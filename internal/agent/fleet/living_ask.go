package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

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
