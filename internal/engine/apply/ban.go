package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
)

// Banning is what a command wants banned.
type Banning struct {
	List  []bans.Named
	For   time.Duration // of what List gives no time; 0: until it is lifted
	Force bool          // also ssh peers, and large parts of the internet
	// KeepLonger leaves a ban of the same that holds longer as it is.
	KeepLonger bool
	// Country says what a country of List has; nil: List names none.
	Country func(code string) (*bans.Country, error)
}

// Banned is what came of it.
type Banned struct {
	Banned   int       `json:"banned"`
	Until    time.Time `json:"until,omitzero"` // the last of their ends; zero where one holds until it is lifted
	Kept     int       `json:"kept,omitempty"` // of those that hold longer already
	Refused  []Refused `json:"refused,omitempty"`
	InForce  bool      `json:"in-force"` // the kernel has it, and asks it
	NotThere []string  `json:"not-banned,omitempty"`
	OfFleet  []string  `json:"of-fleet,omitempty"` // what its fleet bans, and this host does not lift
	Lifted   int       `json:"lifted,omitempty"`
	Given    int       `json:"given,omitempty"` // of what was asked, each counted once
	Notes    []string  `json:"notes,omitempty"`
}

// Refused is something that is never banned.
type Refused struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Ban bans addresses, prefixes and ranges: first in the journal, then in the
// kernel. What is never banned is left out and told of.
func (h *Host) Ban(ctx context.Context, in Banning) (*Banned, error) {
	if err := h.ready(); err != nil {
		return nil, err
	}
	s, ctx, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	c, err := s.running(ctx)
	if err != nil {
		return nil, err
	}
	return s.ban(ctx, c, in)
}

func (s *session) ban(ctx context.Context, c *commands, in Banning) (*Banned, error) {
	now := s.now()
	countries, err := in.countries()
	if err != nil {
		return nil, err
	}
	spared, err := s.spared(c, in.all(countries), in.Force)
	if err != nil {
		return nil, err
	}
	var have *bans.List
	if in.KeepLonger {
		if have, err = s.banned(); err != nil {
			return nil, err
		}
	}
	out, list := s.banning(in, countries, spared, have, now)
	if len(list) == 0 {
		return out, nil
	}
	if err := s.edit(ctx, c, bans.EntryOf(list, now, list[0].By), list, nil, now); err != nil {
		return out, err
	}
	out.InForce, err = s.stillAsked(ctx, c)
	return out, err
}

// countries are those that are named, by their codes.
func (in Banning) countries() (map[string]*bans.Country, error) {
	var out map[string]*bans.Country
	for _, n := range in.List {
		if n.Country == "" || out[n.Country] != nil {
			continue
		}
		if in.Country == nil {
			return nil, fmt.Errorf("the addresses of %s are unknown here", n.Country)
		}
		c, err := in.Country(n.Country)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]*bans.Country{}
		}
		out[n.Country] = c
	}
	return out, nil
}

// all is what is to be banned.
func (in Banning) all(countries map[string]*bans.Country) addrset.Set {
	var all addrset.Builder
	for _, n := range in.List {
		if n.Country == "" {
			all.AddRange(n.What)
		}
	}
	for _, c := range countries {
		all.AddSet(c.Set)
	}
	return all.Set()
}

// banning is what of it is banned at a moment, and what to say then; have is what is
// banned already, where that counts.
func (s *session) banning(in Banning, countries map[string]*bans.Country, spared *spared, have *bans.List, now time.Time) (*Banned, []bans.Ban) {
	out := &Banned{InForce: true}
	forever := false
	by := s.By
	by.Reason = "" // which each ban has
	type key struct {
		what    addrset.Range
		country string
	}
	var longer map[key]time.Time
	if have != nil {
		longer = map[key]time.Time{}
		for _, b := range have.Live(now).All() {
			if b.ID != "" {
				continue // the fleet may lift it
			}
			k := key{what: b.What}
			if b.Country != nil {
				k = key{country: b.Country.Code}
			}
			longer[k] = b.Until
		}
	}
	seen := make(map[key]bool, len(in.List))
	list := make([]bans.Ban, 0, len(in.List))
	for i := len(in.List) - 1; i >= 0; i-- { // the last word counts
		n := in.List[i]
		k := key{n.What, n.Country}
		if seen[k] {
			continue
		}
		seen[k] = true
		b := bans.Ban{What: n.What, Country: countries[n.Country], Since: now, By: by, Reason: cmp.Or(n.Reason, s.By.Reason)}
		if during := cmp.Or(n.For, in.For); during > 0 {
			b.Until = now.Add(during)
		}
		if until, banned := longer[k]; banned && (until.IsZero() || !b.Until.IsZero() && !b.Until.After(until)) {
			out.Kept++
			continue
		}
		if why := spared.why(b); why != nil {
			out.Refused = append(out.Refused, Refused{n.Name(), s.words(why)})
			continue
		}
		list = append(list, b)
		forever = forever || b.Until.IsZero()
		if b.Until.After(out.Until) {
			out.Until = b.Until
		}
	}
	if forever {
		out.Until = time.Time{}
	}
	slices.Reverse(list)
	slices.Reverse(out.Refused)
	out.Banned, out.Given = len(list), len(seen)
	if len(list) > 0 {
		out.Notes = s.notesOf(spared, list)
	}
	return out, list
}

// stillAsked says whether rules look into the sets of bans. They do where nobody else was
// at them since they were read.
func (s *session) stillAsked(ctx context.Context, c *commands) (bool, error) {
	if s.reading() != nil {
		return true, nil
	}
	have, err := s.Backend.Read(ctx, false)
	return err == nil && c.AskedIn(have), err
}

// ready refuses before a state is made.
func (h *Host) ready() error {
	if err := needRoot(); err != nil {
		return err
	}
	if !h.known() {
		return errNoBans
	}
	return nil
}
