package apply

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/nfset"
)

// edit writes an entry to the journal and brings what it changes into the
// kernel. Where the kernel does not take it, the journal is as before.
func (s *session) edit(ctx context.Context, c *commands, e bans.Entry, add []bans.Ban, lift []addrset.Range, now time.Time) error {
	journal := bans.Open(s.dir)
	settled, err := journal.Settled()
	if err != nil {
		return err
	}
	intact, err := journal.Intact()
	if err != nil {
		return err
	}
	if !settled || !intact {
		// A killed command or the disk left a damaged journal, which is mended first.
		settled = settled && intact
		if _, err := s.banned(); err != nil {
			return err
		}
	}
	since := s.instantNow()
	before, err := journal.Append(e)
	if err != nil {
		return s.nothingDone(err)
	}
	s.point("ban journal")
	if err := s.bring(ctx, c, settled, add, lift, now); err != nil {
		if undo := journal.Undo(before); undo != nil {
			return fmt.Errorf("%w\n  and the journal keeps it: %w", err, undo)
		}
		return s.bringBack(ctx, c, err)
	}
	s.point("ban kernel")
	s.stayReading(since)
	if err := journal.Settle(); err != nil {
		return err
	}
	return s.shorten(journal, before, now)
}

// bringBack makes the kernel hold what the journal says after it took a part of
// what it was given and refused the rest. An entry of nothing lets the next
// command do so where that fails.
func (s *session) bringBack(ctx context.Context, c *commands, cause error) error {
	journal, now := bans.Open(s.dir), s.now()
	_, err := journal.Append(bans.Entry{Time: now, By: bans.Author(s.By)})
	if err == nil {
		err = s.bring(context.WithoutCancel(ctx), c, false, nil, nil, now)
	}
	if err == nil {
		err = journal.Settle()
	}
	if err != nil {
		return fmt.Errorf("%w\n  the kernel may hold a part of it, which the next command takes back: %w", cause, err)
	}
	return fmt.Errorf("%w\n  nothing changed", cause)
}

// shorten writes the journal anew where that is worth it. It is looked at each
// time that the journal has grown to twice as many MiB.
func (s *session) shorten(journal bans.Journal, before int64, now time.Time) error {
	magnitude := func(size int64) int { return bits.Len64(uint64(size) >> 20) } //nolint:gosec // not negative
	if size, err := journal.Size(); err != nil || magnitude(size) <= magnitude(before) {
		return err
	}
	list, err := journal.Read()
	if err != nil || !journal.Long(list) {
		return err
	}
	list.Bans = bans.Live(list.Bans, now)
	if err := journal.Rewrite(list); err != nil {
		return err
	}
	s.point("ban rewritten")
	return journal.Settle()
}

// bring makes the kernel hold what the journal says. Where the kernel had all
// before, only what changed is looked at, as long as it is single addresses of
// sets that rules ask.
func (s *session) bring(ctx context.Context, c *commands, settled bool, add []bans.Ban, lift []addrset.Range, now time.Time) error {
	from := c.Asked
	if !settled {
		var err error
		if from, err = s.askedByKernel(ctx); err != nil {
			return err
		}
	}
	var f *filling
	for try := 1; ; try++ {
		var err error
		if f, err = s.lacking(ctx, c, from, settled, add, lift, now); err != nil {
			return err
		}
		// What is asked goes on being asked when it is empty, until rules are
		// loaded anew: bans that come and go must not turn rules over each time.
		f.asked.Exact4 = f.asked.Exact4 || from.Exact4
		f.asked.Exact6 = f.asked.Exact6 || from.Exact6
		if err = f.Take(ctx); err == nil {
			break
		}
		if !errors.Is(err, backend.ErrChanged) || try == tries || ctx.Err() != nil {
			return err
		}
		now = s.now()
	}
	s.point("ban elements")
	turn, err := s.Backend.(backend.Commander).Ask(c.Rules, from, f.asked)
	if err != nil {
		return err
	}
	for try := 1; turn != nil; try++ {
		err := turn.Take(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, backend.ErrChanged) || try == tries || ctx.Err() != nil {
			return err
		}
	}
	if c.Asked == f.asked {
		return nil
	}
	s.point("ban rules")
	c.Asked = f.asked
	if err := s.writeCommands(c); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// lacking is what the kernel has to be given; from is what its rules ask.
func (s *session) lacking(ctx context.Context, c *commands, from backend.Asked, settled bool, add []bans.Ban, lift []addrset.Range, now time.Time) (*filling, error) {
	wide := slices.ContainsFunc(add, func(b bans.Ban) bool { return !b.Single() }) ||
		slices.ContainsFunc(lift, func(r addrset.Range) bool { return r.From != r.To })
	// A set that no rule asks yet may hold what a ban that failed has left.
	fresh := slices.ContainsFunc(add, func(b bans.Ban) bool {
		return b.What.From.Is4() && !c.Asked.Exact4 || b.What.From.Is6() && !c.Asked.Exact6
	})
	if settled && !wide && !fresh {
		return s.difference(ctx, c, add, lift, now)
	}
	list, err := bans.Open(s.dir).Read()
	if err != nil {
		return nil, err
	}
	return s.fill(ctx, c.Commands, from, list.Bans, now)
}

// askedByKernel asks the kernel itself: a command was killed half way.
func (s *session) askedByKernel(ctx context.Context) (backend.Asked, error) {
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return backend.Asked{}, err
	}
	a, err := s.held(g)
	if err != nil {
		return backend.Asked{}, err
	}
	have, err := s.Backend.Read(ctx, false)
	if err != nil {
		return backend.Asked{}, err
	}
	return s.Backend.(backend.Commander).Asked(a, have), nil
}

// lookups is up to how many addresses are looked up one by one.
const lookups = 64

// difference is what to do for single addresses where the kernel has all the
// rest already.
func (s *session) difference(ctx context.Context, c *commands, add []bans.Ban, lift []addrset.Range, now time.Time) (*filling, error) {
	conn, err := nfset.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f := &filling{asked: c.Asked}
	for _, family := range bothFamilies {
		want := map[netip.Addr]time.Time{}
		var about []netip.Addr
		for _, b := range add {
			if b.What.From.Is4() == (family == 4) {
				want[b.What.From] = b.Until
				about = append(about, b.What.From)
			}
		}
		for _, r := range lift {
			if r.From.Is4() == (family == 4) {
				about = append(about, r.From)
			}
		}
		if len(about) == 0 {
			continue
		}
		set, there := find(c.Commands, family, backend.Neither)
		if !there {
			return nil, fmt.Errorf("the policy that runs has no set for bans of IPv%d", family)
		}
		have, err := lookUp(ctx, conn, setOf(c.Commands, set), about)
		if err != nil {
			return nil, err
		}
		f.sets = append(f.sets, fillExact(setOf(c.Commands, set), family, want, have, now))
		if family == 4 {
			f.asked.Exact4 = f.asked.Exact4 || len(want) > 0
		} else {
			f.asked.Exact6 = f.asked.Exact6 || len(want) > 0
		}
	}
	return f, nil
}

// lookUp is dump of no more than some addresses.
func lookUp(ctx context.Context, conn *nfset.Conn, set nfset.Set, about []netip.Addr) (map[netip.Addr]held, error) {
	out := map[netip.Addr]held{}
	if len(about) > lookups {
		all, err := dump(ctx, conn, set)
		for _, a := range about {
			if h, there := all[a]; there {
				out[a] = h
			}
		}
		return out, err
	}
	for _, a := range about {
		e, there, err := conn.Lookup(ctx, set, a.AsSlice())
		if err != nil {
			return nil, err
		}
		if there {
			out[a] = held{to: a, permanent: e.Timeout == 0, left: e.Expires, packets: e.Packets, bytes: e.Bytes}
		}
	}
	return out, nil
}

// stayReading keeps what was seen of the kernel before valid, where nothing
// happened since but the transactions of this process.
func (s *session) stayReading(since *instant) {
	var w reading
	now := s.instantNow()
	if !now.alone(since) || s.readJSON(readingFile, &w) != nil || !since.is(&w.Ruleset) {
		return
	}
	w.Ruleset = *now
	// Without it the next apply reads everything, and no harm is done.
	_ = s.writeUnsynced(readingFile, &w)
}

// settleBanning brings into the kernel what a killed command left in the
// journal alone. Where that fails, the next command tries again.
func (s *session) settleBanning(ctx context.Context) {
	settled, err := bans.Open(s.dir).Settled()
	if settled || err != nil || s.cur.Running == 0 {
		return
	}
	c, err := s.running(ctx)
	if err != nil {
		return // restore brings them in
	}
	if err = s.bring(ctx, c, false, nil, nil, s.now()); err == nil {
		err = bans.Open(s.dir).Settle()
	}
	if err != nil {
		s.note("bring in bans that a command left half done: %v", err)
	}
}
