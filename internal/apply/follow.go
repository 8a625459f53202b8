package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/host"
	"sluice/internal/kernel/nfset"
	"sluice/internal/program"
)

// A policy speaks of what the host decides: by which interfaces default routes leave,
// which addresses it has. That is in sets which are edited in place when it changes, by
// Sync, without a compile or an apply. Whatever else loads rules fills them with what
// the host is at that moment.
//
// Without a default route the last known names stay: an empty set would open what is
// refused by that side.

const followedFile = "host.json"

// followed is what Sync has to know of the policy that runs, and what it did.
type followed struct {
	Format int                     `json:"format"`
	Mark   string                  `json:"mark"` // of the generation that it is of
	Sets   []backend.FollowedSet   `json:"sets,omitempty"`
	First  map[string]program.Held `json:"first,omitempty"` // when that was loaded
	Held   map[string]program.Held `json:"held,omitempty"`  // what the kernel was given last
	Moves  []Move                  `json:"moves,omitempty"` // since it was loaded, the newest last
}

// Move is a change of the host that a set follows.
type Move struct {
	Set  string       `json:"set"`
	From program.Held `json:"from"`
	To   program.Held `json:"to"`
	// Taken is when the sets were brought to it; zero: they are not yet.
	Taken time.Time `json:"taken,omitzero"`
}

// keptMoves is how many moves are written down.
const keptMoves = 32

// String says what moved, as part of a sentence.
func (m Move) String() string {
	if m.Set == program.DefaultRouteSet {
		return movedRoute(m.From.Names, m.To.Names)
	}
	if m.Set == program.ExemptSet {
		return "who is exempt from bans by limits changed: " + m.changed()
	}
	return "this host's addresses in zone " + strings.TrimPrefix(m.Set, program.OwnPrefix) + " changed: " + m.changed()
}

// changed is the addresses that came and went.
func (m Move) changed() string {
	var parts []string
	for _, a := range m.To.Addresses {
		if !slices.Contains(m.From.Addresses, a) {
			parts = append(parts, "+"+a.String())
		}
	}
	for _, a := range m.From.Addresses {
		if !slices.Contains(m.To.Addresses, a) {
			parts = append(parts, "-"+a.String())
		}
	}
	return strings.Join(parts, ", ")
}

func movedRoute(from, to []string) string {
	if len(from) == 1 && len(to) == 1 {
		return fmt.Sprintf("the default route moved from %s to %s", from[0], to[0])
	}
	return fmt.Sprintf("default routes leave by %s, not by %s", namesOr(to), namesOr(from))
}

func namesOr(names []string) string {
	if len(names) == 0 {
		return "no interface"
	}
	return strings.Join(names, " and ")
}

// sides are the interfaces of the host with their addresses, and its default routes.
func (s *session) sides() (*host.Facts, error) {
	if s.side == nil {
		f, err := host.Sides()
		if err != nil {
			return nil, err
		}
		s.servingUnread = f.ReadServing(s.Namespace)
		s.side = &f
	}
	return s.side, nil
}

// heldNow is what sets hold by what the host is; last is what they held before, which
// stays where there is no default route.
func heldNow(f *host.Facts, sets []backend.FollowedSet, last map[string]program.Held) map[string]program.Held {
	route := f.DefaultRoute
	if len(route) == 0 {
		route = last[program.DefaultRouteSet].Names
	}
	out := map[string]program.Held{}
	for _, set := range sets {
		if set.ID == program.DefaultRouteSet {
			out[set.ID] = set.Part(program.Held{Names: route})
			continue
		}
		if set.ID == program.ExemptSet {
			out[set.ID] = set.Part(exemptNow(f, last[set.ID]))
			continue
		}
		out[set.ID] = set.Part(program.Held{Addresses: ownAddresses(f, set.Of, route)})
	}
	return out
}

// ownAddresses are those of the host that a set follows.
func ownAddresses(f *host.Facts, of program.Following, route []string) []netip.Addr {
	var out []netip.Addr
	for _, i := range f.Interfaces {
		if len(of.Interfaces) > 0 && !slices.ContainsFunc(of.Interfaces, func(n string) bool { return fitsInterface(n, i.Name, route) }) {
			continue
		}
		for _, p := range i.Addresses {
			within := !p.Addr().IsLinkLocalUnicast()
			if len(of.Networks) > 0 {
				within = slices.ContainsFunc(of.Networks, func(n netip.Prefix) bool { return n.Contains(p.Addr()) })
			}
			if within {
				out = append(out, p.Addr())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func fitsInterface(pattern, name string, route []string) bool {
	if pattern == program.DefaultRoute {
		return slices.Contains(route, name)
	}
	if start, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(name, start)
	}
	return pattern == name
}

// holding is an artifact whose sets hold what the host is now, to be loaded or to be
// compared with. What cannot be read stays as it was last known.
func (s *session) holding(a backend.Artifact, load bool) backend.Artifact {
	with, is := a.(backend.Following)
	if !is || a == nil {
		return a
	}
	sets := with.Follows()
	if len(sets) == 0 {
		return a
	}
	last := s.lastHeld(with)
	f, err := s.sides()
	if err != nil {
		s.note("what the host is now cannot be read, so the last that is known of it is loaded: %v", err)
		return with.Holding(last)
	}
	if load {
		last = s.afresh(f, sets, last)
	}
	now := heldNow(f, sets, last)
	if stays := lost(f, now); len(stays) > 0 && !s.toldLost {
		s.toldLost = true
		s.note("there is no default route: the last known stays, by %s", strings.Join(stays, ", "))
	}
	if held, asked := now[program.DefaultRouteSet]; asked && len(held.Names) == 0 {
		delete(now, program.DefaultRouteSet) // what it was when the policy was compiled
	}
	return with.Holding(now)
}

// program is the program of a generation, whose sets hold what the host is now.
func (s *session) program(g *Generation) (*program.Program, error) {
	p, err := s.store.program(g)
	if err != nil {
		return nil, err
	}
	for i := range p.Sets {
		set := &p.Sets[i]
		if set.Follow == nil {
			continue
		}
		f, err := s.sides()
		if err != nil {
			return p, nil //nolint:nilerr // what it was when it was compiled is the last that is known
		}
		of := backend.FollowedSet{ID: set.ID, Of: *set.Follow, Sets: []backend.FamilySet{{}, {Family: 4}, {Family: 6}}}
		last := s.lastKnown()
		if _, known := last[set.ID]; !known {
			last[set.ID] = set.Held()
		}
		set.Hold(heldNow(f, []backend.FollowedSet{of}, last)[set.ID])
	}
	return p, nil
}

// lastKnown is what sets held last, of whichever generation.
func (s store) lastKnown() map[string]program.Held {
	f, err := s.followed()
	if err != nil || f.Held == nil {
		return map[string]program.Held{}
	}
	return f.Held
}

// followed reads the file; what is not there or damaged is of no generation.
func (s store) followed() (*followed, error) {
	f := &followed{}
	err := s.readJSON(followedFile, f)
	var damaged *DamagedError
	if isMissing(err) || errors.As(err, &damaged) {
		return &followed{}, nil
	}
	return f, err
}

// settleFollowed writes down what sets were loaded with. What a policy without such
// sets leaves is kept: the next one may need it.
func (s *session) settleFollowed(a backend.Artifact, mark string) {
	if err := s.keepFollowed(a, mark); err != nil {
		s.note("what sets that follow the host hold is not written down: %v", err)
	}
}

func (s *session) keepFollowed(a backend.Artifact, mark string) error {
	old, err := s.followed()
	if err != nil {
		old = &followed{}
	}
	f := &followed{Format: format, Mark: mark, Held: map[string]program.Held{}, First: map[string]program.Held{}}
	maps.Copy(f.Held, old.Held)
	if with, is := a.(backend.Following); is {
		f.Sets = with.Follows()
		maps.Copy(f.Held, s.filled)
		for _, set := range f.Sets {
			f.First[set.ID] = f.Held[set.ID]
		}
	}
	if len(f.Sets)+len(f.Held) == 0 {
		return nil
	}
	if old.Mark == mark && mark != "" { // a restore or a mended rule: the generation is the same
		maps.Copy(f.First, old.First)
		f.Moves = old.moved(f.Held, s.now())
	}
	return s.writeJSON(followedFile, f)
}

// moved is the moves with those from what was held to what is.
func (f *followed) moved(now map[string]program.Held, at time.Time) []Move {
	out := f.Moves
	for _, m := range f.moves(now) {
		if m.Set == program.ExemptSet {
			continue // who logs in and out is no news
		}
		m.Taken = at
		out = append(out, m)
	}
	return out[max(0, len(out)-keptMoves):]
}

// moves are those from what was held to what is.
func (f *followed) moves(now map[string]program.Held) []Move {
	var out []Move
	for _, set := range f.Sets {
		if from, to := f.Held[set.ID], now[set.ID]; !from.Equal(to) {
			out = append(out, Move{Set: set.ID, From: from, To: to})
		}
	}
	return out
}

// Synced is what Sync did.
type Synced struct {
	Generation int    `json:"generation"`
	Moves      []Move `json:"moves"` // that were brought in; none: nothing changed
	// Lost: there is no default route, so that the last known interfaces stay.
	Lost []string `json:"lost,omitempty"`
	// Loaded is the generation that was loaded anew, since an interface is there that
	// it was loaded without, or since nothing ran.
	Loaded int `json:"loaded,omitempty"`
}

// Sync brings the sets that follow the host to what it is now, in one transaction, and
// nothing else. Where they hold that already, nothing is changed. Rules are loaded only
// where a confirmed policy waits for an interface that is there now, or does not run. With
// an error it returns what was brought in before, nil where nothing was.
func (h *Host) Sync(ctx context.Context) (*Synced, error) {
	if !h.known() {
		return &Synced{Moves: []Move{}}, needRoot()
	}
	s, err := h.openUnsettled(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.sync(ctx)
	waits := false
	if err == nil {
		waits, err = s.somethingWaits(ctx)
	}
	s.close()
	if !waits {
		return out, err
	}
	loaded, err := h.Restore(ctx, Restoring{SSHPorts: SSHPorts(), Waiting: true})
	if err != nil {
		return out, err
	}
	if !loaded.Unchanged {
		out.Generation, out.Loaded = loaded.Generation, loaded.Generation
	}
	return out, nil
}

func (s *session) sync(ctx context.Context) (*Synced, error) {
	mark, err := s.Kernel.Mark(ctx)
	if err != nil {
		return nil, err
	}
	f, err := s.followedAs(ctx, mark)
	if err != nil {
		return nil, err
	}
	out := &Synced{Generation: s.cur.Running, Moves: []Move{}}
	follower, can := s.Backend.(backend.Follower)
	if mark == "" || len(f.Sets) == 0 || !can {
		return out, nil
	}
	facts, err := s.sides()
	if err != nil {
		return nil, err
	}
	now := heldNow(facts, f.Sets, s.afresh(facts, f.Sets, f.Held))
	out.Lost = lost(facts, now)
	have := map[string]program.Held{}
	for _, set := range f.Sets {
		have[set.ID], err = follower.Holds(ctx, set)
		if errors.Is(err, nfset.ErrNoSet) {
			return out, nil // the rules went with it
		}
		if err != nil {
			return nil, fmt.Errorf("read set %s: %w", set.ID, err)
		}
	}
	contents := follower.Follow(f.Sets, have, now)
	if contents != nil {
		if err := s.Kernel.Send(ctx, contents); err != nil {
			return nil, fmt.Errorf("bring in what the host is now: %w", err)
		}
	}
	s.point("synced")
	out.Moves = append(out.Moves, f.moves(now)...)
	if len(out.Moves) == 0 {
		if contents != nil {
			s.note("sets that follow the host held something else, and are mended")
		}
		return out, nil
	}
	at := s.now()
	f.Moves = f.moved(now, at)
	for i := range out.Moves {
		out.Moves[i].Taken = at
	}
	maps.Copy(f.Held, now)
	return out, s.writeJSON(followedFile, f)
}

// lost is the interfaces that stay though no default route leaves by them.
func lost(f *host.Facts, now map[string]program.Held) []string {
	if len(f.DefaultRoute) > 0 {
		return nil
	}
	return now[program.DefaultRouteSet].Names
}

// followedAs is what has to be known of the policy under a mark: from its own file, else
// from its artifact.
func (s *session) followedAs(ctx context.Context, mark string) (*followed, error) {
	f, err := s.followed()
	if err == nil && mark != "" && f.Mark == mark {
		return f, nil
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if f, err = s.followed(); err != nil {
		return nil, err
	}
	g, err := s.generation(s.cur.Running)
	if mark == "" || err != nil {
		return &followed{}, nil //nolint:nilerr // what runs, and what is to be done, is asked by somethingWaits
	}
	if f.Mark == g.Mark {
		return f, nil
	}
	a, err := s.held(g)
	if err != nil {
		return nil, &LeftError{err}
	}
	out := &followed{Format: format, Mark: g.Mark, Held: map[string]program.Held{}, First: map[string]program.Held{}}
	maps.Copy(out.Held, f.Held)
	if with, is := a.(backend.Following); is {
		out.Sets, out.First = with.Follows(), with.Held()
		maps.Copy(out.Held, out.First)
	}
	return out, nil
}

// Standing is how the host compares with what the running policy was loaded with.
type Standing struct {
	// Moved is what sets do not hold yet; Taken is what was brought in since the
	// generation was loaded.
	Moved []Move `json:"moved,omitempty"`
	Taken []Move `json:"taken,omitempty"`
	// Fixed is what rules name themselves and the host has otherwise by now: only an
	// apply takes it in.
	Fixed []string `json:"fixed,omitempty"`
	// Lost: there is no default route, and these interfaces are taken for its own.
	Lost []string `json:"lost,omitempty"`
}

// standing compares the kernel's sets with the host as it is.
func (s *session) standing(ctx context.Context, mark string) (out Standing, err error) {
	f, err := s.followed()
	if err != nil {
		return out, err
	}
	facts, err := s.sides()
	if err != nil {
		return out, err
	}
	out.Fixed = s.fixed(facts)
	follower, can := s.Backend.(backend.Follower)
	if !can || f.Mark != mark || len(f.Sets) == 0 {
		return out, nil
	}
	now := heldNow(facts, f.Sets, f.Held)
	out.Lost, out.Taken = lost(facts, now), f.Moves
	for _, set := range f.Sets {
		have, err := follower.Holds(ctx, set)
		if errors.Is(err, nfset.ErrNoSet) {
			continue // drift says so
		}
		if err != nil {
			return out, err
		}
		// What somebody else put there is drift, whatever the host is.
		if want := now[set.ID]; !have.Equal(want) && have.Equal(set.Part(f.Held[set.ID])) {
			out.Moved = append(out.Moved, Move{Set: set.ID, From: have, To: want})
		}
	}
	return out, nil
}

// fixed is what the running rules name themselves and the host has otherwise by now.
func (s *session) fixed(now *host.Facts) []string {
	g, err := s.generation(s.cur.Running)
	if err != nil || len(g.Facts) == 0 {
		return nil
	}
	var then host.Facts
	p, err := s.store.program(g)
	if err != nil || json.Unmarshal(g.Facts, &then) != nil || !then.Known {
		return nil
	}
	var out []string
	for _, r := range p.Rests {
		var text string
		switch {
		case r.Own != nil:
			m := Move{Set: program.OwnPrefix, From: program.Held{Addresses: ownAddresses(&then, *r.Own, then.DefaultRoute)}, To: program.Held{Addresses: ownAddresses(now, *r.Own, now.DefaultRoute)}}
			known := len(now.DefaultRoute) > 0 || !slices.Contains(r.Own.Interfaces, program.DefaultRoute)
			if known && !m.From.Equal(m.To) {
				text = "the addresses that a redirect is on changed (" + m.changed() + ")"
			}
		case len(r.Kept) > 0:
			for _, a := range ownAddresses(&then, program.Following{}, nil) {
				kept := slices.ContainsFunc(r.Kept, func(k program.AddressRange) bool { return k.From.Compare(a) <= 0 && a.Compare(k.To) <= 0 })
				if kept && !slices.Contains(ownAddresses(now, program.Following{}, nil), a) {
					text = "the host lost the address " + a.String() + " of a bypassed service"
				}
			}
		default:
			for _, i := range now.Interfaces {
				if i.Kind == "bridge" {
					text = "the bridge " + i.Name + " appeared"
				}
			}
		}
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// Standing compares, without the lock, the kernel's sets with the host as it is. Where
// there is no state, or it may not be read, there is nothing to compare.
func (h *Host) Standing(ctx context.Context) (generation int, out Standing, err error) {
	if readable := needRoot() == nil; !readable || !h.known() {
		return 0, out, nil
	}
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 {
		return 0, out, err
	}
	s := &session{Host: h, store: st, cur: cur}
	mark, err := s.Kernel.Mark(ctx)
	if err == nil {
		out, err = s.standing(ctx, mark)
	}
	return cur.Running, out, err
}

// LastRoute is the interfaces that default routes left by when that was known last;
// none where it never was.
func LastRoute(dir string) []string {
	return store{dir: dir}.lastKnown()[program.DefaultRouteSet].Names
}

// withoutMoves leaves out of what differs the sets that the host has moved away from.
func (st Standing) withoutMoves(list []backend.Difference) []backend.Difference {
	return slices.DeleteFunc(list, func(d backend.Difference) bool {
		name, _, _ := strings.Cut(d.Name, " (")
		return d.Kind == "element" && slices.ContainsFunc(st.Moved, func(m Move) bool { return m.Set == name })
	})
}
