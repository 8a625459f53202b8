package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// finish records a change that the kernel has made. It may run twice.
func (s *session) finish(j *journal) error {
	from, fromErr := s.generation(j.From.Generation)
	if fromErr == nil && j.From.Generation != j.To.Generation {
		what := replaced
		if j.What == expired || j.What == rolledBack || j.What == removed {
			what = j.What
		}
		from.Trial = nil
		if err := s.record(from, j, what); err != nil {
			return err
		}
	}
	var to *Generation
	if j.To.Generation != 0 {
		var err error
		if to, err = s.generation(j.To.Generation); err != nil {
			return err
		}
		what := j.What
		if what == expired || what == rolledBack {
			what = restored
		}
		events := []string{what}
		if j.Confirm {
			events = append(events, confirmed)
		}
		to.Trial = j.Pending
		if err := s.record(to, j, events...); err != nil {
			return err
		}
		if err := s.holdAs(to, j.Fitted); err != nil {
			return err
		}
	}
	s.point("recorded")
	if s.cur.Running != j.To.Generation || s.cur.Since.IsZero() {
		s.cur.Since = j.Started
	}
	s.cur.Running = j.To.Generation
	s.cur.Pending, s.cur.Unswept = j.Pending, j.Pending != nil
	switch {
	case j.Boot != nil:
		s.cur.Boot, s.cur.Lost = *j.Boot, ""
	case j.Confirm:
		s.cur.Boot, s.cur.Lost = j.To.Generation, ""
	}
	want := desired(to)
	if j.Pending != nil {
		// What it was before may be needed on the way back, which needs no file.
		if before, err := s.generation(j.Pending.Previous); err == nil {
			maps.Copy(want, desired(before))
		}
	}
	s.forgetSysctls(want)
	if err := s.saveCurrent(s.cur); err != nil {
		return err
	}
	s.point("state")
	if s.isUnsaved() {
		return nil
	}
	if err := s.endJournal(); err != nil {
		return err
	}
	s.point("end")
	s.tidy()
	return nil
}

// record adds events, each once.
func (s *session) record(g *Generation, j *journal, events ...string) error {
	for _, what := range events {
		if !slices.ContainsFunc(g.Events, func(e Event) bool { return e.What == what && e.Time.Equal(j.Started) }) {
			took := j.took
			if g.Number != j.To.Generation || what == confirmed {
				took = 0
			}
			g.event(what, j.By, j.Started, took)
		}
	}
	return s.saveGeneration(g)
}

// needed are the generations that must not be forgotten.
func (s *session) needed() []int {
	needed := []int{s.cur.Running, s.cur.Boot}
	if s.cur.Pending != nil {
		needed = append(needed, s.cur.Pending.Generation, s.cur.Pending.Previous)
	}
	return needed
}

// tidy forgets old generations. A history that cannot be tidied up keeps no change
// from being made.
func (s *session) tidy() {
	if err := s.prune(s.needed()...); err != nil {
		s.note("old generations stay: %v", err)
	}
}

// goBack restores what was there before a change that failed, and says what
// the kernel holds now. It does not heed the context, whose end may be why.
func (s *session) goBack(ctx context.Context, j *journal, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goBackTime)
	defer cancel()
	s.point("going back")
	if err := s.forget(ctx, j); err != nil {
		return remedied(SeeKernel, fmt.Errorf("%w\n  rolling back failed too: %w", cause, err))
	}
	before := nameOf(j.From.Generation, j.From.Mark)
	if j.Unmarked {
		before = "rules without a mark of a generation"
	}
	return fmt.Errorf("%w\n  nothing changed: the kernel holds %s, as before", cause, before)
}

const goBackTime = 2 * time.Minute

// forget undoes what a change did: the rules, where the switch was made, and
// else what was filled in for it; sysctls; the generation made for it.
func (s *session) forget(ctx context.Context, j *journal) error {
	mark, err := s.mark(ctx, j.To.Mark, j.From.Mark)
	if err != nil {
		return err
	}
	back, err := s.toLoad(ctx, j.From.Generation)
	from := back.to
	switch {
	case j.From.Mark == "" && j.Unmarked && mark != j.To.Mark:
		// The old rules were not touched, whatever they are.
		return s.drop(j)
	case j.From.Mark == "" && j.Unmarked && (err != nil || from == nil):
		return fmt.Errorf("what ran before has no mark and is not in this state directory")
	case j.From.Mark == "" && j.Unmarked:
		// The generation that should have run is the best that is known.
	case j.From.Mark == "":
		// Nothing ran, whatever should have: another tool took it away.
		back = change{}
	case j.From.Generation == 0 || (from != nil && from.Mark != j.From.Mark):
		if mark == j.To.Mark {
			return fmt.Errorf("what ran before (%s) is not in this state directory", j.From.Mark)
		}
		// The old rules were not touched; what was filled in is left to the
		// sweep of the next apply.
		return s.drop(j)
	case err != nil && mark == j.From.Mark:
		// The old rules are there; only what was filled in beside them stays.
		s.note("%v", err)
		return s.drop(j)
	case err != nil:
		return err
	}
	if from != nil {
		back.artifact = s.beside(back.artifact, s.trialOf(from.Number))
	}
	back.grace = j.Grace
	disarm(j.Pending)
	j.Back, j.Pending = true, nil
	if err := s.load(ctx, j, back); err != nil {
		return err
	}
	s.forgetBanned(back)
	s.point("back")
	if err := s.holdAs(back.to, back.fitted); err != nil {
		return err
	}
	return s.drop(j)
}

// drop ends a journal whose change did not happen.
func (s *session) drop(j *journal) error {
	running, _ := s.generation(s.cur.Running)
	s.forgetSysctls(desired(running))
	if err := s.saveCurrent(s.cur); err != nil {
		return err
	}
	if s.isUnsaved() {
		return nil
	}
	// Where power was lost between the last two steps of finish, the journal of a
	// change that is done is still there.
	if j.New && j.To.Generation != 0 && j.To.Generation != s.cur.Boot {
		if err := s.remove(generationName(j.To.Generation)); err != nil {
			return err
		}
	} else if to, err := s.generation(j.To.Generation); err == nil && to.Trial != nil && (s.cur.Pending == nil || s.cur.Pending.Token != to.Trial.Token) {
		to.Trial = nil
		if err := s.saveGeneration(to); err != nil {
			return err
		}
	}
	if err := s.endJournal(); err != nil {
		return err
	}
	s.tidy()
	return nil
}
