package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
)

// Unban lifts every ban that lies in one of the ranges, those by limits too, and bans of
// the countries.
func (h *Host) Unban(ctx context.Context, named []bans.Named) (*Banned, error) {
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
	var what []addrset.Range
	countries := map[string]bool{} // and whether they were banned
	for _, n := range named {
		if n.Country != "" {
			countries[n.Country] = false
			continue
		}
		what = append(what, n.What)
	}
	of := addrset.Of(what...)
	found := map[addrset.Range]bool{}
	mark := func(inside addrset.Range) {
		// Asked of each range apart only where there are few.
		for _, r := range what {
			if r.ContainsRange(inside) {
				found[r] = true
			}
		}
	}
	exactly := make(map[addrset.Range]bool, len(what))
	for _, r := range what {
		exactly[r] = true
	}
	member, err := h.Membership()
	if err != nil {
		return nil, err
	}
	var lifted []addrset.Range
	var left []bans.Ban // of a fleet that the host has left, so that nobody else lifts them
	for _, b := range list.Bans {
		if b.ID != "" {
			if inside := of.ContainsSet(addrset.Of(b.What)); inside && member == nil {
				left = append(left, b)
			} else if inside && !b.Over(now) {
				mark(b.What)
				out.OfFleet = append(out.OfFleet, b.What.String())
			}
			if member != nil {
				continue
			}
		}
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
	var codes []string
	for _, b := range list.Countries {
		switch code := b.Country.Code; {
		case b.Over(now):
		case of.ContainsSet(b.Country.Set):
			codes = append(codes, code)
			if _, asked := countries[code]; asked {
				countries[code] = true
			}
		default:
			if _, asked := countries[code]; asked {
				countries[code] = true
				codes = append(codes, code)
			}
		}
	}
	out.Lifted += len(codes)
	if runs == nil {
		byLimit, err := liftLimits(ctx, c, of, mark)
		if err != nil {
			return nil, err
		}
		out.Lifted += byLimit
	}
	for _, r := range what {
		if !found[r] && !everything(r) {
			out.NotThere = append(out.NotThere, notBanned(r, list.Live(now).All()))
		}
	}
	for _, code := range slices.Sorted(maps.Keys(countries)) {
		if !countries[code] {
			out.NotThere = append(out.NotThere, code)
		}
	}
	if len(lifted)+len(codes) == 0 {
		return out, nil
	}
	gone := make(map[addrset.Range]bool, len(lifted))
	for _, r := range lifted {
		gone[r] = true
	}
	entry := bans.Entry{Time: now, By: h.By, Lifted: bans.Words(lifted), LiftedCountries: strings.Join(codes, " ")}
	entry.Lift(left)
	if runs != nil {
		_, err = s.banJournal.Append(entry)
		return out, err
	}
	if err := s.edit(ctx, c, entry, nil, lifted, now); err != nil {
		return out, err
	}
	list.Bans = slices.DeleteFunc(list.Bans, func(b bans.Ban) bool { return gone[b.What] && (b.ID == "" || member == nil) })
	list.Countries = slices.DeleteFunc(slices.Clone(list.Countries), func(b bans.Ban) bool { return slices.Contains(codes, b.Country.Code) })
	return out, s.rewrite(s.banJournal, list, now)
}

// everything is what lifts all bans of a family, if there are any.
func everything(r addrset.Range) bool {
	return r.From.IsUnspecified() && !r.To.Next().IsValid()
}

// notBanned says what of the bans that hold is there instead.
func notBanned(r addrset.Range, list []bans.Ban) string {
	all := addrset.Of(r)
	for _, b := range list {
		if b.Set().ContainsSet(all) {
			return fmt.Sprintf("%s (it is banned with %s)", r, b.Name())
		}
	}
	for _, b := range list {
		if b.Set().Overlaps(all) {
			return fmt.Sprintf("%s (a part of it is banned with %s)", r, b.Name())
		}
	}
	return r.String()
}

// liftLimits lifts the bans by limits that lie in a set.
func liftLimits(ctx context.Context, c *commands, of addrset.Set, mark func(addrset.Range)) (int, error) {
	return c.LiftLimits(ctx, func(source addrset.Range) bool {
		// An address of a network stands for it: it is what was seen.
		if !of.Overlaps(addrset.Of(source)) {
			return false
		}
		mark(source)
		for r := range of.Intersect(addrset.Of(source)).Each() {
			mark(r)
		}
		return true
	})
}
