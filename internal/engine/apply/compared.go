package apply

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
)

// Hundreds of thousands of bans take a second to read from the kernel. An apply of
// something else does not read them where a reading has compared them with the journal,
// and since then nobody was at the ruleset, the journal or the clock: they hold what it
// says. A command that bans or lifts a few addresses reads these back, and keeps the
// comparison. Whoever asks whether the kernel holds them, as verify and status do,
// reads them.

// compared is what bans in the kernel were compared with.
type compared struct {
	Journal string `json:"journal"` // the sum of its text
	// Clock is by how much the wall clock, by which the journal says when a ban ends, was
	// ahead of that of the kernel's time-outs, in nanoseconds.
	Clock int64 `json:"clock"`
}

// clockAhead is the Clock of this moment.
func (s *session) clockAhead() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it is always there
	return int64(s.now().Sub(time.Unix(ts.Unix())))
}

// trustBans says whether the sets of a store hold what the journal says, going by a
// reading of the ruleset as it is.
func (s *session) trustBans(w *reading, store backend.BanStore) bool {
	s.bansFound, s.bansTrusted = nil, false
	if w == nil || w.Bans == nil {
		return false
	}
	if off := time.Duration(s.clockAhead() - w.Bans.Clock); off.Abs() > time.Second {
		return false
	}
	g, err := s.generation(w.Generation)
	if err != nil {
		return false
	}
	known, err := s.commands(g)
	if err != nil || known == nil || !store.Same(known.BanStore) {
		return false
	}
	if sum, err := s.banJournal.Sum(); err != nil || sum != w.Bans.Journal {
		return false
	}
	s.bansFound, s.bansTrusted = w.Bans, true
	return true
}

// sameJournal says whether the journal is the one that a reading compared bans with; of one
// that compared none, that there are none.
func (s *session) sameJournal(w *reading) bool {
	if w.Bans == nil {
		size, err := s.banJournal.Size()
		return err == nil && size == 0
	}
	sum, err := s.banJournal.Sum()
	return err == nil && sum == w.Bans.Journal
}

// stillTrusted says whether bans that were trusted when a change was planned may be now,
// and what the sets of a store hold then.
func (s *session) stillTrusted(store backend.BanStore) (backend.ReadBans, bool) {
	if !s.bansTrusted || !s.alone() {
		return nil, false
	}
	list, err := s.banJournal.Read()
	if err != nil || list.Sum != s.bansFound.Journal {
		return nil, false
	}
	return store.Holding(wanted(list, store.Never(), s.now())), true
}

// foundBans notes that the sets of a store hold what a list says; plan is what is to do
// for it. A list of which the reader has to be told something is compared each time.
func (s *session) foundBans(list *bans.List, store backend.BanStore, plan backend.BanPlan) {
	if plan.Fill != nil || plan.Turn != nil || !list.Settled || len(list.Damaged) > 0 || len(outOfForce(list, store, s.now())) > 0 {
		return
	}
	for name := range store.Holding(backend.Bans{}) {
		if _, plain := plan.Read[name]; !plain {
			return
		}
	}
	s.bansFound = &compared{list.Sum, s.clockAhead()}
}

// keepBans records that bans were compared since an instant, beside a reading that
// holds still.
func (s *session) keepBans(since *instant) {
	if w := s.reading(); !s.Beside && w != nil && since.is(&w.Ruleset) && s.bansFound != nil {
		w.Bans = s.bansFound
		// Without it the next apply reads them, and no harm is done.
		_ = s.writeUnsynced(readingFile, w)
	}
}

// mostReadBack is up to how many addresses a ban reads back.
const mostReadBack = 64

// holdsEdit says whether the kernel holds what was banned and lifted. It is false where
// that is not looked up.
func (s *session) holdsEdit(ctx context.Context, c *commands, add []bans.Ban, lift []addrset.Range) bool {
	return len(add)+len(lift) <= mostReadBack && s.readsBack(ctx, c, add, lift)
}

// readsBack is holdsEdit of any number of single addresses.
func (s *session) readsBack(ctx context.Context, c *commands, add []bans.Ban, lift []addrset.Range) bool {
	if slices.ContainsFunc(add, func(b bans.Ban) bool { return !b.Single() }) ||
		slices.ContainsFunc(lift, func(r addrset.Range) bool { return r.From != r.To }) {
		return false
	}
	now := s.now()
	plan, err := c.Edit(ctx, s.banEdit(c.BanStore, add, lift, now), now)
	return err == nil && plan.Fill == nil && plan.Turn == nil
}
