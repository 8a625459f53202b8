package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/fleet/wire"
)

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
