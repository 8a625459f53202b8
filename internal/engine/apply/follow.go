package apply

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
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
	Rules  json.RawMessage         `json:"rules,omitempty"` // that name what a set holds
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

// KeptMoves is how many moves are recorded, the oldest going first.
const KeptMoves = 32

// String says what moved, as part of a sentence.
func (m Move) String() string {
	if m.Set == program.DefaultRouteSet {
		return movedRoute(m.From.Names, m.To.Names)
	}
	if m.Set == program.ExemptSet {
		return "who is exempt from bans by limits changed: " + cameAndWent(m.From.Addresses, m.To.Addresses, true)
	}
	whose := "this host's addresses"
	if zone, is := program.CutOwnSet(m.Set); is && zone != "" {
		whose += " in zone " + zone
	}
	return whose + " changed: " + cameAndWent(m.From.Addresses, m.To.Addresses, true)
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
	if isLost(err) {
		return &followed{}, nil
	}
	return f, err
}

// settleFollowed records what sets were loaded with, and that there are none where it is
// so: Sync need not look into the artifact. What a policy without such sets leaves is kept:
// the next one may need it.
func (s *session) settleFollowed(a backend.Artifact, mark string) {
	if err := s.keepFollowed(a, mark); err != nil {
		s.note("the contents of sets that follow the host are not recorded: %v", err)
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
		f.Sets, f.Rules = with.Follows(), with.Named()
		maps.Copy(f.Held, s.filled)
		for _, set := range f.Sets {
			f.First[set.ID] = f.Held[set.ID]
		}
	}
	if old.Mark == mark && mark != "" { // a restore or a fixed rule: the generation is the same
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
		if _, own := program.CutOwnSet(m.Set); own {
			// Some hosts change an address every few hours: they all are one move.
			out = slices.DeleteFunc(slices.Clone(out), func(o Move) bool { return o.Set == m.Set })
			if m.From = f.First[m.Set]; m.From.Equal(m.To) {
				continue
			}
		}
		out = append(out, m)
	}
	return out[max(0, len(out)-KeptMoves):]
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

// LastRoute is the interfaces that default routes left by when that was known last;
// none where it never was.
func LastRoute(dir string) []string {
	return store{dir: dir}.lastKnown()[program.DefaultRouteSet].Names
}
