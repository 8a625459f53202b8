package fleet

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

// limited is what limits of a stage's host have banned.
type limited struct {
	has   []LimitBan
	fails error
	asked int // about how many that it did not know
}

func (k *kernel) LimitBans(_ context.Context, known func(netip.Prefix) bool) ([]LimitBan, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.limited.has {
		if !known(b.What) {
			k.limited.asked++
		}
	}
	return k.limited.has, k.limited.fails
}

// limits are bans by limits, "!" before those that the host spares.
func limits(of ...string) (all []LimitBan) {
	for _, text := range of {
		spare := text[0] == '!'
		if spare {
			text = text[1:]
		}
		all = append(all, LimitBan{netip.MustParsePrefix(text), spare})
	}
	return all
}

// cutAll ends all streams.
func (s *stage) cutAll() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, to := range all {
		to.Cut()
	}
}

// toldLimits lets time go by, and gives what the controller was told since.
func (s *stage) toldLimits(after time.Duration) string {
	time.Sleep(after)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := fmt.Sprint(s.limited)
	s.limited = nil
	return out
}

func TestLimitBans(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer func() { end() }()
		is := func(after time.Duration, want string) {
			t.Helper()
			if got := s.toldLimits(after); got != want {
				t.Errorf("told %s, want %s", got, want)
			}
		}
		has := func(of ...string) { s.set(func() { s.kernel.limited.has = limits(of...) }) }
		is(time.Minute, "[]")
		has("203.0.113.7/32", "!198.51.100.1/32", "2001:db8::/64")
		is(Usual.Limits, "[203.0.113.7/32 2001:db8::/64]")
		is(time.Hour, "[]") // once each
		s.set(func() {
			if s.kernel.limited.asked != 3 {
				t.Errorf("the host looked at %d bans closely, of 3", s.kernel.limited.asked)
			}
			s.kernel.limited.fails = errCut
		})
		is(time.Minute, "[]")
		s.set(func() { s.kernel.limited.fails = nil })
		is(time.Minute, "[]")
		has("2001:db8::/64")
		is(time.Minute, "[]")
		has("203.0.113.7/32", "2001:db8::/64", "203.0.113.8/32") // it ended, and started again
		is(Usual.Limits, "[203.0.113.7/32 203.0.113.8/32]")

		// What may have been lost with a stream is told again on the next, and nothing else.
		has("203.0.113.7/32", "2001:db8::/64", "203.0.113.8/32", "203.0.113.9/32")
		is(Usual.Limits, "[203.0.113.9/32]")
		s.cutAll()
		is(time.Minute, "[203.0.113.7/32 203.0.113.8/32 203.0.113.9/32]")
		is(2*time.Minute, "[]")
		s.cutAll()
		is(time.Minute, "[]")

		// As many as one message has.
		var many []string
		for i := range wire.MostLimitBans + 1 {
			many = append(many, fmt.Sprintf("10.0.%d.%d/32", i/256, i%256))
		}
		has(many...)
		time.Sleep(Usual.Limits)
		synctest.Wait()
		s.set(func() {
			if n := len(s.limited); n != len(many) {
				t.Errorf("%d of %d were told", n, len(many))
			}
		})
	})
}
