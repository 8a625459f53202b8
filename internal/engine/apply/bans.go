package apply

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// Ban kinds.
const (
	ByCommand = "command"
	ByLimit   = "limit"
	ByFleet   = "fleet"
)

// BanEntry is one ban for a reader.
type BanEntry struct {
	What    string    `json:"what"`
	By      string    `json:"by"`           // ByCommand, ByLimit or ByFleet
	ID      string    `json:"id,omitempty"` // of a ban of the fleet
	Author  Author    `json:"author,omitzero"`
	Rule    string    `json:"rule,omitempty"` // of limits: where the policy has but one that bans
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Packets uint64    `json:"packets"` // dropped, since the sets were made; of overlapping ranges together
	Bytes   uint64    `json:"bytes"`
	InForce bool      `json:"in-force"` // the kernel has it, and asks it of some address of it
	// Widened is how many sources of a prefix a limit had banned when it banned the prefix.
	Widened int `json:"widened,omitempty"`
	// Exempt is the addresses of a ban by a limit that never-ban or the host exempts now.
	Exempt []string `json:"exempt,omitempty"`
	// Before says of a ban by a limit that it is older than the rules that run: it may be of a
	// limit that they do not have.
	Before bool `json:"before,omitempty"`
	// Of is the addresses that a ban by a limit holds for.
	Of addrset.Set `json:"-"`
	// Ranges is how many a country had when it was banned, by data of a date.
	Ranges int       `json:"ranges,omitempty"`
	Data   time.Time `json:"data,omitzero"`
	at     addrset.Range
}

// Bans lists what is banned by command and by limits, sorted by address. It
// takes no lock and changes nothing.
func (h *Host) Bans(ctx context.Context) ([]BanEntry, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	out := []BanEntry{}
	if !h.known() {
		return out, nil
	}
	st, cur, err := h.peek()
	if err != nil {
		return nil, err
	}
	list, err := h.bansJournal().Read()
	if err != nil {
		return nil, err
	}
	if n := len(list.Damaged); n > 0 {
		h.note("damaged lines of the journal of bans were ignored: %d", n)
	}
	now := h.now()
	s := h.session(st, cur)
	c, _ := s.running(ctx) // without it nothing is in force
	k := &backend.HeldBans{}
	if c != nil {
		if k, err = c.Held(ctx); err != nil {
			return nil, err
		}
	}
	for _, b := range list.Live(now).All() {
		e := BanEntry{What: b.Name(), By: ByCommand, ID: b.ID, Author: b.By, Reason: b.Reason, Since: b.Since, Until: b.Until, at: b.What}
		if b.ID != "" {
			e.By = ByFleet
		}
		if b.Country != nil {
			e.Ranges, e.Data = b.Country.Set.Len4()+b.Country.Set.Len6(), b.Country.Data
			e.Packets, e.Bytes, e.InForce = hitsOf(k, b.Country.Set)
		} else {
			e.Packets, e.Bytes, e.InForce = hits(k, b.What)
		}
		out = append(out, e)
	}
	byLimit, err := s.entriesOfLimits(ctx, k.Limits, now)
	if err != nil {
		return nil, err
	}
	out = append(out, byLimit...)
	sorting.By(out, func(a, b BanEntry) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return strings.Compare(a.By+a.What+a.ID, b.By+b.What+b.ID)
	})
	return out, nil
}

// entriesOfLimits is what limits ban for a reader.
func (s *session) entriesOfLimits(ctx context.Context, limits []backend.LimitBans, now time.Time) (out []BanEntry, err error) {
	one, spared := false, addrset.Set{}
	if len(limits) > 0 {
		if one, spared, err = s.bansByLimits(ctx); err != nil {
			return nil, err
		}
	}
	since := s.policySince()
	for _, l := range limits {
		for _, held := range l.Bans {
			e := BanEntry{
				What: held.Range.String(), By: ByLimit, Until: now.Add(held.Left).Truncate(time.Second),
				Packets: held.Packets, Bytes: held.Bytes, Of: addrset.Of(held.Range).Difference(spared), at: held.Range,
			}
			if held.Age > 0 {
				begun := now.Add(-held.Age)
				e.Since, e.Before = begun.Truncate(time.Second), begun.Before(since)
			}
			if one && !e.Before {
				e.Rule = l.Rule
			}
			if l.Widened {
				e.Widened = program.Widening
			}
			e.InForce = !e.Of.IsEmpty()
			for part := range spared.Intersect(addrset.Of(held.Range)).Each() {
				e.Exempt = append(e.Exempt, part.String())
			}
			out = append(out, e)
		}
	}
	return out, nil
}

// policySince is since when the policy that runs does, with whichever lists and exceptions.
func (s *session) policySince() time.Time {
	g, err := s.generation(s.cur.Running)
	if err != nil || g.RefreshOf == 0 {
		return s.cur.Since
	}
	first, err := s.generation(g.RefreshOf)
	if err != nil {
		return s.cur.Since
	}
	for n := first.Number + 1; n < s.cur.Next; n++ {
		if other, err := s.generation(n); err == nil && other.RefreshOf != first.Number {
			return s.cur.Since // another policy may have run between them
		}
	}
	return first.Created
}

// BansByLimits lists what limits have banned, unsorted, and the generation that runs. It takes
// no lock and changes nothing.
func (h *Host) BansByLimits(ctx context.Context) (list []BanEntry, generation int, err error) {
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 {
		return nil, 0, err
	}
	s := h.session(st, cur)
	c, _ := s.running(ctx) // without it nothing is in force
	if c == nil {
		return nil, 0, nil
	}
	limits, err := c.Limits(ctx)
	if err != nil {
		return nil, 0, err
	}
	list, err = s.entriesOfLimits(ctx, limits, h.now())
	return list, cur.Running, err
}

// LimitBan is what a limit has banned.
type LimitBan struct {
	What  addrset.Range
	Known bool // to whoever asks
	Spare bool // never-ban or the host exempts a part of it; not read of what is known
}

// LimitBans lists what limits have banned, where wanted says so of the generation that runs.
// It takes no lock, changes nothing, and reads little where the caller knows all of them.
func (h *Host) LimitBans(ctx context.Context, wanted func(generation int) (bool, error), known func(addrset.Range) bool) ([]LimitBan, error) {
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 {
		return nil, err
	}
	if is, err := wanted(cur.Running); err != nil || !is {
		return nil, err
	}
	s := h.session(st, cur)
	c, err := s.running(ctx)
	if err != nil {
		return nil, err
	}
	limits, err := c.Limits(ctx)
	if err != nil {
		return nil, err
	}
	var out []LimitBan
	news := false
	for _, l := range limits {
		for _, held := range l.Bans {
			is := known(held.Range)
			out, news = append(out, LimitBan{What: held.Range, Known: is}), news || !is
		}
	}
	if !news {
		return out, nil
	}
	_, spared, err := s.bansByLimits(ctx)
	for i := range out {
		b := &out[i]
		b.Spare = !b.Known && spared.Overlaps(addrset.Of(b.What))
	}
	return out, err
}

// bansByLimits says whether no more than one rule of the policy that runs bans by its
// limit, so that it is known which one did, and whom such bans spare.
func (s *session) bansByLimits(ctx context.Context) (one bool, spared addrset.Set, err error) {
	g, err := s.generation(s.cur.Running)
	if err != nil {
		return false, spared, nil //nolint:nilerr // it is not known, and the list does without
	}
	p, err := s.program(g)
	if err != nil {
		return false, spared, nil //nolint:nilerr // as above
	}
	for _, set := range p.Sets {
		if set.Commands {
			spared = spared.Union(set.Never)
		}
	}
	f, err := s.followed()
	if err != nil {
		return false, spared, err
	}
	follower, can := s.Backend.(backend.Follower)
	for _, set := range f.Sets {
		if !can || set.ID != program.ExemptSet {
			continue
		}
		held, err := follower.Holds(ctx, set)
		if err != nil && !errors.Is(err, backend.ErrNotThere) {
			return false, spared, err
		}
		for _, a := range held.Addresses {
			spared = spared.Union(addrset.Of(addrset.Range{From: a, To: a}))
		}
	}
	return limitsThatBan(p) == 1, spared, nil
}

// limitsThatBan counts the policy's rules that ban by a limit.
func limitsThatBan(p *program.Program) int {
	rules := map[program.Origin]bool{}
	for _, chain := range p.Chains {
		for _, r := range chain.Rules {
			for _, a := range r.Actions {
				if program.EffectOf(a).Bans != "" {
					rules[r.Origin] = true
				}
			}
		}
	}
	return len(rules)
}

// hits is what the elements of a ban have counted; there is false where the
// kernel has none of it.
func hits(k *backend.HeldBans, r addrset.Range) (packets, bytes uint64, there bool) {
	if r.From == r.To {
		h, there := k.Single[r.From]
		return h.Packets, h.Bytes, there
	}
	i, _ := slices.BinarySearchFunc(k.Ranges, r.From, func(h backend.HeldBan, a netip.Addr) int { return h.From.Compare(a) })
	if i > 0 && k.Ranges[i-1].To.Compare(r.From) >= 0 {
		i--
	}
	for ; i < len(k.Ranges) && k.Ranges[i].From.Compare(r.To) <= 0; i++ {
		h := k.Ranges[i]
		packets, bytes, there = packets+h.Packets, bytes+h.Bytes, true
	}
	return packets, bytes, there
}

// hitsOf is hits of what a country has, each element counted once.
func hitsOf(k *backend.HeldBans, of addrset.Set) (packets, bytes uint64, there bool) {
	at := 0
	for r := range of.Each() {
		for ; at < len(k.Ranges) && k.Ranges[at].From.Compare(r.To) <= 0; at++ {
			h := k.Ranges[at]
			if h.To.Compare(r.From) >= 0 {
				packets, bytes, there = packets+h.Packets, bytes+h.Bytes, true
			}
		}
	}
	return packets, bytes, there
}
