package kerneltest

import (
	"slices"
	"time"

	"sluice/internal/lab/drafts"
	"sluice/internal/program"
	"sluice/internal/program/compile"
)

// trial is a policy and packets, of which some end otherwise than the reference
// says.
type trial struct {
	draft    *drafts.Draft
	compiled *program.Program // of the draft; it can be loaded once
	shots    []*shot
}

// shrinking bounds the search for a smaller case.
const shrinking = 90 * time.Second

// differs asks the kernel once more, and says which shots differ. A policy that
// cannot be read has no differences.
func (y *yard) differs(c trial) (failed []*shot) {
	y.t.Helper()
	resolved, err := resolveDraft(y.t, c.draft, y.facts)
	if err != nil {
		return nil
	}
	compiled, err := compile.Compile(resolved)
	if err != nil {
		return nil
	}
	if _, _, err := y.load(compiled, nil); err != nil {
		return nil
	}
	y.follow(resolved, c.shots)
	y.forget()
	y.send(c.shots)
	crowd(c.shots)
	for _, s := range c.shots {
		if y.difference(s) != "" {
			failed = append(failed, s)
		}
	}
	return failed
}

// shrink gives a small case that still fails.
func (y *yard) shrink(c trial) trial {
	y.t.Helper()
	end := time.Now().Add(shrinking)
	late := func() bool { return time.Now().After(end) }
	failed := y.differs(c)
	if len(failed) == 0 {
		return c
	}
	// Another packet that differs, for another reason, is not what is looked for.
	fails := func(c trial) bool { return slices.Contains(y.differs(c), failed[0]) }
	// The packet alone, else with its conversation, else with all before it.
	for _, fits := range []func(s *shot) bool{
		func(s *shot) bool { return s == failed[0] },
		func(s *shot) bool { return s == failed[0] || s.flow != "" && talkOf(s) == talkOf(failed[0]) },
	} {
		fewer := trial{draft: c.draft, shots: slices.DeleteFunc(slices.Clone(c.shots), func(s *shot) bool { return !fits(s) })}
		if fails(fewer) {
			c = fewer
			break
		}
	}
	c.shots = fewest(c.shots, late, func(shots []*shot) bool { return fails(trial{draft: c.draft, shots: shots}) })
	for before := -1; before != c.draft.Size() && !late(); {
		before = c.draft.Size()
		shrinkDraft(&c, late, func(d *drafts.Draft) bool { return fails(trial{draft: d, shots: c.shots}) })
	}
	c.shots = fewest(c.shots, late, func(shots []*shot) bool { return fails(trial{draft: c.draft, shots: shots}) })
	y.differs(c) // once more, for the report
	return c
}

func shrinkDraft(c *trial, late func() bool, fails func(*drafts.Draft) bool) {
	for i := range c.draft.Sections {
		d := c.draft.Clone()
		if d.Sections = slices.Delete(d.Sections, i, i+1); fails(d) {
			c.draft = d
			break
		}
	}
	for i := range c.draft.Lists() {
		d := c.draft.Clone()
		list := d.Lists()[i]
		*list = fewest(*list, late, func(fewer []string) bool {
			before := *list
			*list = fewer
			defer func() { *list = before }()
			return fails(d)
		})
		c.draft = d
	}
	for name := range c.draft.Files {
		d := c.draft.Clone()
		d.Files[name] = fewest(d.Files[name], late, func(fewer []string) bool {
			try := d.Clone()
			try.Files[name] = fewer
			return fails(try)
		})
		c.draft = d
	}
}

// fewest takes out of a list what it can while it still fails: halves first, then
// smaller parts.
func fewest[T any](list []T, late func() bool, fails func([]T) bool) []T {
	for size := len(list); size > 0; size /= 2 {
		for at := 0; at < len(list) && !late(); {
			fewer := slices.Delete(slices.Clone(list), at, min(at+size, len(list)))
			if fails(fewer) {
				list = fewer
			} else {
				at += size
			}
		}
	}
	return list
}
