package apply

import (
	"reflect"

	"sluice/internal/backend"
	"sluice/internal/base/english"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

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
		out[set.ID] = set.Part(program.Held{Addresses: f.Own(fitting(set.Of.Interfaces, route))})
	}
	return out
}

// fitting accepts the interfaces of some names; nil, which is all, where there are none.
func fitting(names, route []string) func(string) bool {
	if len(names) == 0 {
		return nil
	}
	return func(name string) bool { return program.Fits(names, name, route) }
}

// lost is the interfaces that stay though no default route leaves by them.
func lost(f *host.Facts, now map[string]program.Held) []string {
	if len(f.DefaultRoute) > 0 {
		return nil
	}
	return now[program.DefaultRouteSet].Names
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
		s.note("the state of the host cannot be read, so the last known one is loaded: %v", err)
		return with.Holding(last)
	}
	if load {
		last = s.afresh(f, sets, last)
	}
	now := heldNow(f, sets, last)
	if stays := lost(f, now); len(stays) > 0 && !s.toldLost {
		s.toldLost = true
		s.note("%s", NoDefaultRoute(stays))
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

// sameButForHost says that a generation's artifact differs from another one in nothing
// but what the host was when each was made.
func (s *session) sameButForHost(g *Generation, a backend.Artifact) bool {
	next, is := a.(backend.Following)
	if !is || len(next.Follows()) == 0 {
		return false
	}
	old, err := s.artifactOf(g)
	if err != nil {
		return false
	}
	was, is := old.(backend.Following)
	if !is || reflect.DeepEqual(was.Held(), next.Held()) {
		return false
	}
	encoded, err := next.Holding(was.Held()).Encode()
	return err == nil && wholeID(encoded) == g.Artifact
}

// NoDefaultRoute says that there is none, and that rules take the interfaces of the last
// known ones for its own.
func NoDefaultRoute(last []string) string {
	if len(last) == 1 {
		return "there is no default route: the last known one stays, by " + last[0]
	}
	return "there is no default route: the last known ones stay, by " + english.List(last)
}
