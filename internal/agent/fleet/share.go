package fleet

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/fleet/wire"
)

// LimitBan is what a limit of this host has banned.
type LimitBan struct {
	What  netip.Prefix
	Spare bool // a part of it this host never bans, so that it is nobody else's matter
}

// shares is what of bans by limits the fleet was told, and when, for as long as they hold.
type shares struct {
	told  map[netip.Prefix]time.Time
	ended time.Time // the last stream
}

// lostWithin is how long before the end of a stream what was sent on it may have been lost:
// the controller may have died with it.
const lostWithin = time.Minute

// share tells the controller what limits have banned, each ban once. One stream at a time has
// it done.
func (m *Member) share(ctx context.Context, s Stream) error {
	defer func() { m.shares.ended = time.Now() }()
	for what, at := range m.shares.told {
		if m.shares.ended.Sub(at) < lostWithin {
			delete(m.shares.told, what)
		}
	}
	for ctx.Err() == nil {
		if err := m.shareNew(ctx, s); err != nil {
			return err
		}
		sleep(ctx, m.Times.Limits)
	}
	return nil
}

// shareNew tells what was banned since. The error is the stream's.
func (m *Member) shareNew(ctx context.Context, s Stream) error {
	has, err := m.Engine.LimitBans(ctx, func(p netip.Prefix) bool { _, known := m.shares.told[p]; return known })
	if err != nil {
		return nil // a host without rules says so by itself, and it is asked again
	}
	before := m.shares.told
	m.shares.told = map[netip.Prefix]time.Time{}
	var news []netip.Prefix
	for _, b := range has {
		at, known := before[b.What]
		if !known && !b.Spare {
			news = append(news, b.What)
			continue
		}
		m.shares.told[b.What] = at
	}
	sorting.By(news, netip.Prefix.Compare)
	for some := range slices.Chunk(news, wire.MostLimitBans) {
		if err := m.send(ctx, s, &wire.Message{LimitBans: &wire.LimitBans{What: some}}); err != nil {
			return err
		}
		for _, p := range some {
			m.shares.told[p] = time.Now()
		}
	}
	return nil
}
