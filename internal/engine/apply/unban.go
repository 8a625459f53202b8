package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/nfset"
)

// Unban lifts every ban that lies in one of the ranges, those by limits too.
func (h *Host) Unban(ctx context.Context, what []addrset.Range) (*Banned, error) {
	if err := h.ready(); err != nil {
		return nil, err
	}
	s, ctx, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	now := s.now()
	list, err := s.banned()
	if err != nil {
		return nil, err
	}
	c, runs := s.running(ctx)
	out := &Banned{InForce: runs == nil}
	of := addrset.Of(what...)
	found := map[addrset.Range]bool{}
	mark := func(inside addrset.Range) {
		// Asked of each range apart only where there are few.
		for _, r := range what {
			if within(inside, r) {
				found[r] = true
			}
		}
	}
	exactly := make(map[addrset.Range]bool, len(what))
	for _, r := range what {
		exactly[r] = true
	}
	var lifted []addrset.Range
	for _, b := range list {
		switch {
		case exactly[b.What]:
			found[b.What] = found[b.What] || !b.Over(now)
			lifted = append(lifted, b.What)
		case of.ContainsSet(addrset.Of(b.What)):
			if !b.Over(now) {
				mark(b.What)
			}
			lifted = append(lifted, b.What)
		default:
			continue
		}
		if !b.Over(now) {
			out.Lifted++
		}
	}
	if runs == nil {
		byLimit, err := s.liftLimits(ctx, c, of, mark)
		if err != nil {
			return nil, err
		}
		out.Lifted += byLimit
	}
	for _, r := range what {
		if !found[r] && !everything(r) {
			out.NotThere = append(out.NotThere, notBanned(r, list, now))
		}
	}
	if len(lifted) == 0 {
		return out, nil
	}
	entry := bans.Entry{Time: now, By: bans.Author(h.By), Lifted: bans.Words(lifted)}
	if runs != nil {
		_, err = bans.Open(s.dir).Append(entry)
		return out, err
	}
	return out, s.edit(ctx, c, entry, nil, lifted, now)
}

// everything is what lifts all bans of a family, if there are any.
func everything(r addrset.Range) bool {
	return r.From.IsUnspecified() && !r.To.Next().IsValid()
}

func within(inner, outer addrset.Range) bool {
	return inner.From.Is4() == outer.From.Is4() && outer.From.Compare(inner.From) <= 0 && inner.To.Compare(outer.To) <= 0
}

// notBanned says what is there instead.
func notBanned(r addrset.Range, list []bans.Ban, now time.Time) string {
	for _, b := range list {
		if !b.Over(now) && within(r, b.What) {
			return fmt.Sprintf("%s (it is banned with %s)", r, b.What)
		}
	}
	for _, b := range list {
		if !b.Over(now) && addrset.Of(r).Overlaps(addrset.Of(b.What)) {
			return fmt.Sprintf("%s (a part of it is banned with %s)", r, b.What)
		}
	}
	return r.String()
}

// liftLimits takes sources out of the sets that limits fill.
func (s *session) liftLimits(ctx context.Context, c *commands, of addrset.Set, mark func(addrset.Range)) (int, error) {
	if len(c.Limit) == 0 {
		return 0, nil
	}
	conn, err := nfset.Open()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	total := 0
	for _, l := range c.Limit {
		set := nfset.Set{Table: c.Table, Name: l.Name}
		have, err := dump(ctx, conn, set)
		if err != nil {
			return total, err
		}
		var gone []nfset.Element
		for _, a := range slices.SortedFunc(maps.Keys(have), netip.Addr.Compare) {
			source := limitRange(a)
			// An address of a network stands for it: it is what was seen.
			if !of.Overlaps(addrset.Of(source)) || a.Is4() && !of.Contains(a) {
				continue
			}
			gone = append(gone, nfset.Element{Key: a.AsSlice()})
			mark(source)
			for r := range of.Intersect(addrset.Of(source)).Each() {
				mark(r)
			}
		}
		for _, e := range gone {
			// It may have gone by itself meanwhile.
			if err := conn.Delete(ctx, set, slices.Values([]nfset.Element{e})); err != nil && !errors.Is(err, nfset.ErrNoElement) {
				return total, err
			}
			total++
		}
	}
	return total, nil
}

// limitRange is what an element of a set that limits fill stands for.
func limitRange(a netip.Addr) addrset.Range {
	if a.Is4() {
		return addrset.Range{From: a, To: a}
	}
	return addrset.PrefixRange(netip.PrefixFrom(a, 64).Masked())
}
