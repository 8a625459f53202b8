package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/language/bans"
)

// What the fleet of a host bans is in the journal of bans beside what commands do, each ban by
// its ID: who lifts one lifts no other, and the kernel has what all of them come to.

// FleetVia is Author.Via of what the fleet did.
const FleetVia = "fleet"

// FleetBanning is a change of what the fleet of the host bans.
type FleetBanning struct {
	Incarnation int64
	Ban         []bans.Ban // each with ID, What, Until, By and Reason, and of each ID one
	Lift        []string   // IDs, none of Ban
	// Whole says that Ban is all that the fleet bans with an ID behind From, up to To, of which
	// "" is no bound: what the host has there besides, of that incarnation, is lifted.
	Whole    bool
	From, To string
	// Bounds are those of a generation.
	Bounds func(generation int) (*FleetBounds, error)
}

// FleetBounds is what the fleet may ban.
type FleetBounds struct {
	Most int // how many bans of the fleet the host has at a time
	May  func(what addrset.Range, length time.Duration) error
}

// FleetBanned is what came of it.
type FleetBanned struct {
	Refused []FleetRefused
	// Proved says that the kernel was read back and has it all, and that rules ask for it.
	Proved bool
}

// FleetRefused is a ban that the host does not take.
type FleetRefused struct{ ID, Why string }

// sameEnd is by how much the end of a ban may differ from one that the host has already: each
// message of the fleet tells the time a little otherwise.
const sameEnd = 5 * time.Second

// BanFleet brings what the fleet bans into the journal and the kernel. What is never banned is
// refused, as of a command without force.
func (k *Keeper) BanFleet(ctx context.Context, in FleetBanning) (*FleetBanned, error) {
	if k.kept == nil {
		if err := k.host.ready(); err != nil {
			return nil, err
		}
	}
	s, c, ctx, err := k.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.lock.release()
	s.as(Asked{By: Author{Via: FleetVia}})
	held, err := k.held(s)
	if err != nil {
		return nil, err
	}
	now := s.now()
	out, add, lift, err := s.fleetChange(c, in, held, now)
	if err != nil {
		return nil, err
	}
	if len(add)+len(lift) == 0 {
		out.Proved, err = s.stillAsked(ctx, c)
		return out, err
	}
	since := s.instantNow()
	entry := bans.EntryOf(add, now, s.By)
	entry.Lift(lift)
	var ranges []addrset.Range
	for _, b := range lift {
		held.remove(b)
		ranges = append(ranges, b.What)
	}
	for _, b := range add {
		held.put(b)
	}
	to := outcomeOf(add, ranges, now, c.Never(), held.ends)
	done := false
	if k.kept != nil && !k.kept.flows && to.single() {
		done, out.Proved = k.commit(ctx, []bans.Entry{entry}, to, now, nil, true)
	}
	if !done {
		if k.kept != nil {
			k.kept.held = nil
		}
		if err := s.edit(ctx, c, entry, add, ranges, now); err != nil {
			return out, err
		}
		asked, err := s.stillAsked(ctx, c)
		if err != nil {
			return out, err
		}
		out.Proved = asked && s.hasAll(ctx, c)
		if k.kept != nil {
			k.stay(since, Answered{Banned: &Banned{InForce: asked}})
		}
	}
	return out, nil
}

// hasAll says whether the kernel, which is read, has what the journal says.
func (s *session) hasAll(ctx context.Context, c *commands) bool {
	now := s.now()
	e := s.banEdit(c.BanStore, nil, nil, now)
	e.Doubt = true
	plan, err := c.Edit(ctx, e, now)
	return err == nil && plan.Fill == nil && plan.Turn == nil
}

// fleetChange is what of a change is new, and what of it is refused.
func (s *session) fleetChange(c *commands, in FleetBanning, held *heldBans, now time.Time) (out *FleetBanned, add, lift []bans.Ban, err error) {
	out = &FleetBanned{}
	var all addrset.Builder
	for _, b := range in.Ban {
		all.AddRange(b.What)
	}
	spared, err := s.spared(c, all.Set(), false)
	if err != nil {
		return nil, nil, nil, err
	}
	bounds, err := in.Bounds(s.cur.Running)
	if err != nil {
		return nil, nil, nil, err
	}
	gone := func(id string) {
		if of, has := held.fleet[id]; has {
			lift = append(lift, bans.Ban{ID: id, What: of.what})
		}
	}
	for _, id := range in.Lift {
		gone(id)
	}
	kept := map[string]bool{}
	for _, b := range in.Ban {
		kept[b.ID] = true
	}
	if in.Whole {
		for id, of := range held.fleet {
			if of.incarnation == in.Incarnation && id > in.From && (in.To == "" || id <= in.To) && !kept[id] {
				gone(id)
			}
		}
		sorting.By(lift, func(a, b bans.Ban) int { return a.What.Compare(b.What) })
	}
	refuse := func(b bans.Ban, why string) {
		out.Refused = append(out.Refused, FleetRefused{b.ID, why})
		gone(b.ID) // of an older one of that ID
	}
	count := len(held.fleet) - len(lift)
	for _, b := range in.Ban {
		if b.Over(now) {
			gone(b.ID)
			continue
		}
		if why := bounds.May(b.What, b.Until.Sub(now)); why != nil {
			refuse(b, s.words(why))
			continue
		}
		of, known := held.fleet[b.ID]
		switch end, has := held.end(b.What, b.ID); {
		case has && of.incarnation == in.Incarnation && !end.IsZero() && end.Sub(b.Until).Abs() <= sameEnd:
			continue
		}
		if why := spared.why(b); why != nil {
			refuse(b, s.words(why))
			continue
		}
		if !known && count >= bounds.Most {
			if held.prune(now); len(held.fleet)-len(lift)+len(add) >= bounds.Most {
				refuse(b, fmt.Sprintf("this host has %d bans of the fleet, which is the most allowed", bounds.Most))
				continue
			}
			count = len(held.fleet) - len(lift) + len(add)
		}
		if !known {
			count++
		}
		b.Since, b.Incarnation = now, in.Incarnation
		add = append(add, b)
	}
	return out, add, lift, nil
}

// heldBans are the ends of all bans by range, and the ranges of those of the fleet by ID.
type heldBans struct {
	at    map[addrset.Range][]banEnd
	fleet map[string]fleetBan
}

type fleetBan struct {
	what        addrset.Range
	incarnation int64
}

type banEnd struct {
	id    string
	until time.Time
}

// held is what the journal has, which is read once for as long as nobody else writes to it.
func (k *Keeper) held(s *session) (*heldBans, error) {
	if k.kept != nil && k.kept.held != nil {
		return k.kept.held, nil
	}
	list, err := s.banJournal.Read()
	if err != nil {
		return nil, err
	}
	h := &heldBans{make(map[addrset.Range][]banEnd, len(list.Bans)), map[string]fleetBan{}}
	now := s.now()
	for _, b := range list.Bans {
		if !b.Over(now) {
			h.put(b)
		}
	}
	if k.kept != nil {
		k.kept.held = h
		s.banJournal.Forget()
	}
	return h, nil
}

func (h *heldBans) put(b bans.Ban) {
	if b.ID != "" {
		h.fleet[b.ID] = fleetBan{b.What, b.Incarnation}
	}
	list := h.at[b.What]
	for i := range list {
		if list[i].id == b.ID {
			list[i].until = b.Until
			return
		}
	}
	h.at[b.What] = append(list, banEnd{b.ID, b.Until})
}

func (h *heldBans) remove(b bans.Ban) {
	delete(h.fleet, b.ID)
	list := slices.DeleteFunc(h.at[b.What], func(e banEnd) bool { return e.id == b.ID })
	if h.at[b.What] = list; len(list) == 0 {
		delete(h.at, b.What)
	}
}

func (h *heldBans) end(what addrset.Range, id string) (until time.Time, has bool) {
	for _, e := range h.at[what] {
		if e.id == id {
			return e.until, true
		}
	}
	return until, false
}

func (h *heldBans) ends(what addrset.Range) (out []time.Time) {
	for _, e := range h.at[what] {
		out = append(out, e.until)
	}
	return out
}

// prune forgets what is over.
func (h *heldBans) prune(now time.Time) {
	for what, list := range h.at {
		for _, e := range slices.Clone(list) {
			if !e.until.IsZero() && !e.until.After(now) {
				h.remove(bans.Ban{What: what, ID: e.id})
			}
		}
	}
}

// outcome is what the kernel is to hold of the ranges that an edit is of: of bans by commands
// and by the fleet the longest counts, and what one lifts the other may hold.
type outcome struct {
	add  []bans.Ban
	lift []addrset.Range
}

func outcomeOf(add []bans.Ban, lift []addrset.Range, now time.Time, never addrset.Set, ends func(addrset.Range) []time.Time) (out outcome) {
	seen := make(map[addrset.Range]bool, len(add)+len(lift))
	take := func(r addrset.Range) {
		if seen[r] {
			return
		}
		seen[r] = true
		if until, holds := bans.Latest(now, ends(r)); holds && (r.From != r.To || !never.Contains(r.From)) {
			out.add = append(out.add, bans.Ban{What: r, Until: until})
		} else {
			out.lift = append(out.lift, r)
		}
	}
	for _, b := range add {
		if b.Country != nil {
			out.add = append(out.add, b)
			continue
		}
		take(b.What)
	}
	for _, r := range lift {
		take(r)
	}
	return out
}

// single says that it is of few single addresses alone.
func (o *outcome) single() bool {
	return len(o.add)+len(o.lift) <= mostTogether && !slices.ContainsFunc(o.add, func(b bans.Ban) bool { return !b.Single() }) &&
		!slices.ContainsFunc(o.lift, func(r addrset.Range) bool { return r.From != r.To })
}
