package apply

import (
	"context"

	"sluice/internal/backend"
)

// Where a reading has seen that the kernel holds the running generation to the
// letter, and nobody touched the ruleset since, what the kernel holds is known
// without reading it. That is enough for a change of a few elements, such as one
// ban more in a file: it is then read back by the number of the ruleset, which says
// that nobody else was at it, and by the elements themselves. After every other change
// rules are read.

// assumed is the steps from the running generation to an artifact where they are
// known without reading the kernel; nil where they are not.
func (s *session) assumed(ctx context.Context, c change) []backend.Step {
	s.readAt, s.touched = nil, nil
	editor, can := s.Backend.(backend.Editor)
	w := s.reading()
	if !can || c.listing == nil || c.artifact == nil || c.fitted != nil || w == nil || w.Unread && c.verify {
		return nil
	}
	g, err := s.generation(s.cur.Running)
	if err != nil || g.Closed || g.Fitted != nil {
		return nil
	}
	from, to, err := s.partsApart(g.Artifact, c.listing)
	if err != nil {
		return nil
	}
	steps, known := editor.Edits(c.artifact, from, to)
	if !known || !s.few(steps) || !s.sameBans(ctx, w, g, c.artifact) {
		return nil
	}
	s.before, s.readAt = nil, &w.Ruleset
	return steps
}

// onlyEdits says whether a change of the policy that boots would be such a one.
func (s *session) onlyEdits(ctx context.Context, in Input, c change) bool {
	g, err := s.generation(s.cur.Running)
	return err == nil && s.cur.Pending == nil && s.cur.Boot == g.Number && sameSettings(g.Sysctls, in.Sysctls) && s.assumed(ctx, c) != nil
}

// sameBans says whether what is banned by command is in the kernel as it should be,
// and asked for as it is by the running generation.
func (s *session) sameBans(ctx context.Context, w *reading, g *Generation, a backend.Artifact) bool {
	s.bans, s.bansKnown = nil, true
	if store := s.banStore(a); store == nil || !store.Room() {
		return true
	}
	known, err := s.commands(g)
	if err != nil || known == nil {
		return false
	}
	s.bans = known.BanStore
	store := s.banStore(a)
	if s.trustBans(w, store) {
		return true
	}
	list, err := s.banned()
	if err != nil {
		return false
	}
	plan, err := store.Fill(ctx, wanted(list, store.Never(), s.now()), s.now())
	if err != nil || plan.Fill != nil || plan.Turn != nil {
		return false
	}
	s.foundBans(list, store, plan)
	return true
}

// partsApart gives the parts of an artifact that is kept and of another one. Where
// both have the same large parts, those are empty in both.
func (s *session) partsApart(id string, to *listing) (a, b [][]byte, err error) {
	blob, err := s.blob(id)
	if err != nil {
		return nil, nil, err
	}
	if a, err = backend.Split(blob); err == nil && len(a) > 2 && string(a[0]) == partsListed && string(a[1]) == to.partsID {
		b, err = backend.Split(to.blob)
		return a[2:], b[2:], err
	}
	whole, err := s.whole(id)
	if err != nil {
		return nil, nil, err
	}
	if a, err = backend.Split(whole); err == nil {
		b, err = backend.Split(to.whole)
	}
	for i := range min(len(a), len(b)) {
		// As in a list.
		a[i], b[i] = append([]byte{inList}, a[i]...), append([]byte{inList}, b[i]...)
	}
	return a, b, err
}

// maxTouched is up to how many elements are looked up one by one.
const maxTouched = 64

// few says whether steps do nothing but edit a few elements that can be looked up
// afterwards, and keeps which.
func (s *session) few(steps []backend.Step) bool {
	s.touched = []backend.Checked{}
	all := 0
	for _, step := range steps {
		contents, is := step.Transaction.(backend.Checked)
		if !is || step.Purpose != backend.Edit {
			return false
		}
		n, few := contents.Touches()
		if all += n; !few || all > maxTouched {
			return false
		}
		s.touched = append(s.touched, contents)
	}
	return true
}

// foundTouched says whether the kernel holds what it should by what this change
// touched alone: nobody else was at the ruleset since a reading saw it. Where it is
// false, everything is read.
func (s *session) foundTouched(ctx context.Context) bool {
	if s.touched == nil {
		return false
	}
	for _, contents := range s.touched {
		if holds, err := contents.Holds(ctx); err != nil || !holds {
			return false
		}
	}
	at := s.instantNow()
	if !s.alone() {
		return false
	}
	s.foundSame(at)
	s.edited = s.same != nil
	return s.edited
}
