package apply

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
)

// edit writes an entry to the journal and brings what it changes into the
// kernel. Where the kernel does not take it, the journal is as before.
func (s *session) edit(ctx context.Context, c *commands, e bans.Entry, add []bans.Ban, lift []addrset.Range, now time.Time) error {
	journal := s.banJournal
	settled, err := journal.Settled()
	if err != nil {
		return err
	}
	intact, err := journal.Intact()
	if err != nil {
		return err
	}
	if !settled || !intact {
		// A killed command or the disk left a damaged journal, which is fixed first.
		settled = settled && intact
		if _, err := s.banned(); err != nil {
			return err
		}
	}
	since, from := s.instantNow(), journal.Written()
	before, err := journal.Append(e)
	if err != nil {
		return s.nothingDone(err)
	}
	s.point("ban journal")
	to, err := s.outcome(c, add, lift, now)
	if err != nil {
		return errors.Join(err, journal.Undo(before))
	}
	// Of a country all is compared with the kernel.
	settled = settled && len(e.Countries) == 0 && e.LiftedCountries == ""
	if err := s.bring(ctx, c, settled, to.add, to.lift, now); err != nil {
		if undo := journal.Undo(before); undo != nil {
			return fmt.Errorf("%w\n  and the journal keeps it: %w", err, undo)
		}
		return s.bringBack(ctx, c, err)
	}
	s.point("ban kernel")
	if err := journal.Settle(); err != nil {
		return err
	}
	sum := ""
	if settled && s.holdsEdit(ctx, c, to.add, to.lift) {
		sum = journal.Written()
	}
	s.stayReading(since, from, sum)
	return s.shorten(journal, before, now)
}

// outcome is that of an edit which the journal has by now.
func (s *session) outcome(c *commands, add []bans.Ban, lift []addrset.Range, now time.Time) (outcome, error) {
	if !s.banJournal.HasFleet() {
		return outcome{add, lift}, nil
	}
	list, err := s.banJournal.Read()
	if err != nil {
		return outcome{}, err
	}
	return outcomeOf(add, lift, now, c.Never(), list.Ends), nil
}

// bringBack makes the kernel hold what the journal says after it took a part of
// what it was given and refused the rest. An entry of nothing lets the next
// command do so where that fails.
func (s *session) bringBack(ctx context.Context, c *commands, cause error) error {
	journal, now := s.banJournal, s.now()
	_, err := journal.Append(bans.Entry{Time: now, By: s.By})
	if err == nil {
		err = s.bring(context.WithoutCancel(ctx), c, false, nil, nil, now)
	}
	if err == nil {
		err = journal.Settle()
	}
	if err != nil {
		return fmt.Errorf("%w\n  the kernel may hold part of it, which the next command undoes: %w", cause, err)
	}
	return fmt.Errorf("%w\n  nothing changed", cause)
}

// shorten writes the journal again where that is worth it. It is looked at each
// time that the journal has grown to twice as many MiB.
func (s *session) shorten(journal bans.Journal, before int64, now time.Time) error {
	magnitude := func(size int64) int { return bits.Len64(uint64(size) >> 20) } //nolint:gosec // not negative
	if size, err := journal.Size(); err != nil || magnitude(size) <= magnitude(before) {
		return err
	}
	list, err := journal.Read()
	if err != nil {
		return err
	}
	return s.rewrite(journal, list, now)
}

// rewrite writes the journal again where it is long for what it comes to, which is the list.
func (s *session) rewrite(journal bans.Journal, list *bans.List, now time.Time) error {
	if !journal.Long(list, now) {
		return nil
	}
	if err := journal.Rewrite(list.Live(now)); err != nil {
		return err
	}
	s.point("ban rewritten")
	return journal.Settle()
}

// bring makes the kernel hold what the journal says. Where the kernel had all
// before, only what changed is looked at, as long as it is single addresses of
// sets that rules ask.
func (s *session) bring(ctx context.Context, c *commands, settled bool, add []bans.Ban, lift []addrset.Range, now time.Time) error {
	store := c.BanStore
	if !settled {
		var err error
		if store, err = s.storeInKernel(ctx); err != nil {
			return err
		}
	}
	e := s.banEdit(store, add, lift, now)
	e.Doubt = !settled
	var plan backend.BanPlan
	for try := 1; ; try++ {
		var err error
		if plan, err = store.Edit(ctx, e, now); err != nil {
			return err
		}
		if plan.Fill == nil {
			break
		}
		if err = plan.Fill.Take(ctx); err == nil {
			break
		}
		if !errors.Is(err, backend.ErrChanged) || try == tries || ctx.Err() != nil {
			return err
		}
		now = s.now()
	}
	s.point("ban elements")
	for try := 1; plan.Turn != nil; try++ {
		err := plan.Turn.Take(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, backend.ErrChanged) || try == tries || ctx.Err() != nil {
			return err
		}
	}
	if plan.End != nil {
		if err := plan.End.Take(ctx); err != nil {
			return err
		}
	}
	if settled && plan.Turn == nil {
		return nil
	}
	s.point("ban rules")
	c.BanStore = plan.After
	return s.keepCommands(c.Mark, c.BanStore)
}

// banEdit is an edit of what the kernel had.
func (s *session) banEdit(store backend.BanStore, add []bans.Ban, lift []addrset.Range, now time.Time) backend.BanEdit {
	e := backend.BanEdit{Lift: lift, All: func() (backend.Bans, error) {
		list, err := s.banJournal.Read()
		if err != nil {
			return backend.Bans{}, err
		}
		return wanted(list, store.Never(), now), nil
	}}
	for _, b := range add {
		if b.Country != nil {
			continue // All has it
		}
		e.Add = append(e.Add, backend.BannedRange{Range: b.What, Until: b.Until})
	}
	return e
}

// storeInKernel asks the kernel itself: a command was killed half way.
func (s *session) storeInKernel(ctx context.Context) (backend.BanStore, error) {
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return nil, err
	}
	a, err := s.held(g)
	if err != nil {
		return nil, err
	}
	have, err := s.Backend.Read(ctx, false)
	if err != nil {
		return nil, err
	}
	return s.Backend.(backend.Banner).BanStoreIn(a, have), nil
}

// stayReading keeps what was seen of the kernel before valid, where nothing
// happened since but the transactions of this process. From and to are the journal's sums
// before them and behind them, where the kernel was seen to hold what is between.
func (s *session) stayReading(since *instant, from, to string) {
	var w reading
	now := s.instantNow()
	if !now.alone(since) || s.readJSON(readingFile, &w) != nil || !since.is(&w.Ruleset) {
		return
	}
	w.Ruleset = *now
	if w.Bans != nil && w.Bans.Journal == from && to != "" {
		w.Bans.Journal = to
	}
	// Without it the next apply reads everything, and no harm is done.
	_ = s.writeUnsynced(readingFile, &w)
}

// settleBanning brings into the kernel what a killed command left in the
// journal alone. Where that fails, the next command tries again.
func (s *session) settleBanning(ctx context.Context) {
	settled, err := s.banJournal.Settled()
	if settled || err != nil || s.cur.Running == 0 {
		return
	}
	c, err := s.running(ctx)
	if err != nil {
		return // restore brings them in
	}
	if err = s.bring(ctx, c, false, nil, nil, s.now()); err == nil {
		err = s.banJournal.Settle()
	}
	if err != nil {
		s.note("finish bans that a command left half done: %v", err)
	}
}
