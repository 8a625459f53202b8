package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
)

// mostAdded bounds how many addresses and ranges commands may have in living sets: each
// load of the policy and each look at its state reads them.
const mostAdded = 1 << 16

// SetEdit is what a command adds to a living set, or removes from it.
type SetEdit struct {
	Set   string
	What  []addrset.Range
	For   time.Duration // of what is added; 0: until it is removed
	Force bool          // also where somebody who is logged in could not come back
}

// SetEdited is what came of it.
type SetEdited struct {
	Set        string            `json:"set"`
	Entries    []apply.Exception `json:"entries"` // that came, or went
	NotThere   []string          `json:"not-there,omitempty"`
	Generation int               `json:"generation"` // that runs now
	// LockedOut is who could not log in again; then nothing was changed.
	LockedOut string   `json:"locked-out,omitempty"`
	Notes     []string `json:"notes,omitempty"`
}

// LivingSet is a set to which commands may add.
type LivingSet struct {
	Name   string     `json:"name"`
	At     string     `json:"at,omitempty"` // its place in the policy, file:line
	Policy []string   `json:"policy"`       // what the policy itself has in it
	Added  []SetEntry `json:"added"`        // by commands
	Gone   bool       `json:"gone"`         // the running policy has no living set of that name
}

// SetEntry is what a command added, and whether the set has it.
type SetEntry struct {
	apply.Exception
	InForce bool `json:"in-force"`
}

// NoLivingSetError says that the running policy has no living set of a name.
type NoLivingSetError struct {
	Set    string
	Exists bool     // as a set that is not living
	Known  []string // living sets
}

func (e *NoLivingSetError) Error() string {
	if e.Exists {
		return fmt.Sprintf("set %q of the running policy is not living, so commands cannot edit it", e.Set)
	}
	return fmt.Sprintf("the running policy has no set %q", e.Set)
}

// LivingSets are those of the policy that runs, and then those of which it has none any
// more and commands still have something in the state.
func (h *Host) LivingSets(context.Context) ([]LivingSet, error) {
	running, err := h.Running(nil)
	if err != nil {
		return nil, err
	}
	hold, err := h.Exceptions()
	if err != nil {
		return nil, err
	}
	loaded := apply.Among(running.Runs.Exceptions)
	out, at := []LivingSet{}, map[string]int{}
	for _, s := range running.Policy.Sets {
		if s.Living {
			at[s.Name] = len(out)
			out = append(out, LivingSet{Name: s.Name, At: fmt.Sprintf("%s:%d", s.Pos.File, s.Pos.Line), Policy: rangeTexts(s), Added: []SetEntry{}})
		}
	}
	for _, e := range apply.InSets(hold) {
		i, known := at[e.Set]
		if !known {
			i = len(out)
			at[e.Set] = i
			out = append(out, LivingSet{Name: e.Set, Policy: []string{}, Gone: true})
		}
		out[i].Added = append(out[i].Added, SetEntry{e, !out[i].Gone && loaded(e)})
	}
	return out, nil
}

func rangeTexts(s *policy.Set) []string {
	out := []string{}
	for _, e := range s.Elements {
		out = append(out, e.Range.String())
	}
	return out
}

// AddToSet adds addresses to a living set of the running policy. What is in it by a command
// already is added again.
func (h *Host) AddToSet(ctx context.Context, in SetEdit) (*SetEdited, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*SetEdited, error) { return h.AddToSet(ctx, in) })
	}
	running, hold, err := h.editing(in.Set)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out := &SetEdited{Set: in.Set, Entries: []apply.Exception{}}
	came := map[string]bool{}
	for _, what := range in.What {
		e := apply.Exception{What: what.String(), Set: in.Set, Since: now.Truncate(time.Second).UTC(), By: h.By}
		if in.For > 0 {
			e.Until = now.Add(in.For + time.Second - 1).Truncate(time.Second).UTC()
		}
		if !came[e.What] {
			came[e.What] = true
			out.Entries = append(out.Entries, e)
		}
	}
	next := slices.DeleteFunc(slices.Clone(hold), func(e apply.Exception) bool { return e.Set == in.Set && came[e.What] })
	next = append(next, out.Entries...)
	if n := len(apply.InSets(next)); n > mostAdded {
		return nil, fmt.Errorf("commands would have added %s entries to living sets, of at most %s", english.Grouped(n), english.Grouped(mostAdded))
	}
	breaks, err := h.breaks(ctx)
	if err == nil && breaks != nil {
		var why string
		if why, err = breaks(out.Entries...); why != "" {
			err = &ForbiddenError{why}
		}
	}
	if err != nil {
		return nil, err
	}
	return h.setEdited(ctx, running, hold, next, in, out)
}

// RemoveFromSet removes from a living set of the running policy what commands added to it: what
// lies in the given ranges.
func (h *Host) RemoveFromSet(ctx context.Context, in SetEdit) (*SetEdited, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*SetEdited, error) { return h.RemoveFromSet(ctx, in) })
	}
	running, hold, err := h.editing(in.Set)
	var none *NoLivingSetError
	if errors.As(err, &none) && running != nil && slices.ContainsFunc(hold, func(e apply.Exception) bool { return e.Set == in.Set }) {
		err = nil // what is kept of a set that is gone
	}
	if err != nil {
		return nil, err
	}
	out := &SetEdited{Set: in.Set, Entries: []apply.Exception{}}
	named := addrset.NestOf(in.What)
	var next []apply.Exception
	var gone []addrset.Range
	for _, e := range hold {
		if e.Set == in.Set {
			what, err := addrset.ParseRange(e.What)
			if err != nil {
				return nil, err
			}
			if _, goes := named.Around(what); goes {
				out.Entries, gone = append(out.Entries, e), append(gone, what)
				continue
			}
		}
		next = append(next, e)
	}
	found, instead := addrset.NestOf(gone), insteadIn(running.Policy.Set(in.Set))
	for _, r := range in.What {
		if !found.Within(r) {
			out.NotThere = append(out.NotThere, r.String()+instead(r))
		}
	}
	if len(out.Entries) == 0 {
		out.Generation = running.Runs.Number
		return out, nil
	}
	return h.setEdited(ctx, running, hold, next, in, out)
}

// insteadIn says of a range that no command added by itself in what of a set it is.
func insteadIn(s *policy.Set) func(addrset.Range) string {
	if s == nil {
		return func(addrset.Range) string { return "" }
	}
	var own, added []addrset.Range
	for _, e := range s.Elements {
		own = append(own, e.Range)
	}
	for _, a := range s.Added {
		added = append(added, a.What)
	}
	ofPolicy, ofCommands := addrset.NestOf(own), addrset.NestOf(added)
	return func(r addrset.Range) string {
		if in, is := ofPolicy.Around(r); is {
			return fmt.Sprintf(" (the policy has it: %s)", in)
		}
		if in, is := ofCommands.Around(r); is {
			return fmt.Sprintf(" (it is part of %s)", in)
		}
		return ""
	}
}

// editing is what a change of a living set begins with.
func (h *Host) editing(set string) (*Subject, []apply.Exception, error) {
	running, err := h.Running(nil)
	if err != nil {
		return nil, nil, err
	}
	hold, err := h.Exceptions()
	if err != nil {
		return nil, nil, err
	}
	s := running.Policy.Set(set)
	if s != nil && s.Living {
		return running, hold, nil
	}
	none := &NoLivingSetError{Set: set, Exists: s != nil}
	for _, s := range running.Policy.Sets {
		if s.Living {
			none.Known = append(none.Known, s.Name)
		}
	}
	return running, hold, none
}

func (h *Host) setEdited(ctx context.Context, running *Subject, from, to []apply.Exception, in SetEdit, out *SetEdited) (*SetEdited, error) {
	loaded, err := h.excepted(ctx, running, from, to, in.Force)
	if err != nil {
		return nil, err
	}
	out.Generation, out.LockedOut, out.Notes = loaded.Generation, loaded.LockedOut, loaded.Notes
	if out.LockedOut != "" {
		out.Entries = []apply.Exception{}
	}
	return out, nil
}

// homeless are the sets to which commands added and that a policy has not, or not living.
func homeless(p *policy.Policy, hold []apply.Exception) (names []string) {
	for _, e := range apply.InSets(hold) {
		if s := p.Set(e.Set); (s == nil || !s.Living) && !slices.Contains(names, e.Set) {
			names = append(names, e.Set)
		}
	}
	return names
}
