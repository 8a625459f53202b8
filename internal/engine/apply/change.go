package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// change is one way from what the kernel holds to a generation, or to nothing.
type change struct {
	what     string // the event that it is
	to       *Generation
	artifact backend.Artifact // of to
	listing  *listing         // how artifact is kept, where that is known
	program  *program.Program // of to; nil: as the generation has it
	expected *program.Program // of to, with only the passes that it needs; nil: the same
	fitted   *Fitted          // where artifact leaves out interfaces that are not there
	isNew    bool             // to was made for this change, and goes when it fails
	wait     time.Duration    // for a confirmation; 0: none is asked for
	confirm  bool             // to is confirmed by the change itself
	boot     *int             // boot generation afterwards, where it is neither kept nor to
	peers    []SSHClient      // who manages the host now
	verify   bool             // read back, and go back where it differs
	grace    *passage         // of to, where the change goes back to it
}

// DriftError says that the kernel does not hold what was loaded.
type DriftError struct{ Differences []backend.Difference }

func (e *DriftError) Error() string {
	return fmt.Sprintf("the kernel does not hold what was loaded: %d differences", len(e.Differences)) + shown(e.Differences, DescribeDifference)
}

// shown is a line for each of the first of a list, and how many there are beside.
func shown[T any](list []T, text func(T) string) string {
	var b strings.Builder
	for i, v := range list {
		if i == maxShown {
			fmt.Fprintf(&b, "\n  … and %d more", len(list)-maxShown)
			break
		}
		b.WriteString("\n  " + text(v))
	}
	return b.String()
}

// maxShown bounds lists in messages.
const maxShown = 20

// DescribeDifference is one line for a reader.
func DescribeDifference(d backend.Difference) string {
	text := d.Kind + " " + d.Name + ": "
	switch {
	case d.Have == "":
		text += "missing: " + d.Want
	case d.Want == "":
		text += "not ours: " + d.Have
	default:
		text += "want " + d.Want + ", have " + d.Have
	}
	if d.Origin.File != "" {
		text += fmt.Sprintf(" (%s:%d)", d.Origin.File, d.Origin.Line)
	}
	return text
}

func number(g *Generation) int {
	if g == nil {
		return 0
	}
	return g.Number
}

func markOf(g *Generation) string {
	if g == nil {
		return ""
	}
	return g.Mark
}

// nameOf is how messages speak of what the kernel holds.
func nameOf(generation int, mark string) string {
	switch {
	case mark == "":
		return "no policy of sluice"
	case generation == 0:
		return "a policy that this state directory does not know (" + mark + ")"
	default:
		return fmt.Sprintf("generation %d", generation)
	}
}

// change makes the change or leaves the kernel as it was. The journal is on
// disk before the first effect, and the watcher armed before the switch.
func (s *session) change(ctx context.Context, c change) error {
	mark, err := s.mark(ctx)
	if err == nil && mark == "" {
		mark, err = s.markAgain(ctx)
	}
	if err != nil {
		return err
	}
	unmarked := false
	if mark == "" {
		empty, err := s.empty(ctx)
		if err != nil {
			return fmt.Errorf("read what the kernel holds: %w", err)
		}
		unmarked = !empty
	}
	by := s.By
	if c.what == expired {
		by = Author{} // nobody does it
	}
	j := &journal{
		Format: format, What: c.what, Started: s.now(), BootID: bootID(), By: by,
		From: place{s.cur.Running, mark},
		To:   place{number(c.to), markOf(c.to)},
		New:  c.isNew, Confirm: c.confirm, Boot: c.boot, Fitted: c.fitted, Unmarked: unmarked,
	}
	if c.wait > 0 {
		if j.Pending, err = s.newPending(j, c.wait); err != nil {
			return err
		}
		c.artifact = s.beside(c.artifact, j.Pending)
	}
	if err := s.saveJournal(j); err != nil {
		return s.nothingDone(err)
	}
	s.point("journal")

	err = s.load(ctx, j, c)
	if err == nil {
		s.forgetBanned(c)
		s.forgetOuter(c)
		began := time.Now()
		err = s.verify(ctx, c)
		took(&s.times.Check, began)
	}
	if err != nil {
		return s.goBack(ctx, j, err)
	}
	if j.Pending != nil {
		j.Pending.start(c.wait)
	}
	j.took = s.now().Sub(j.Started)
	if err := s.finish(j); err != nil {
		return fmt.Errorf("%w\n  the kernel holds %s; the next command writes the rest of the state; until then a boot loads %s", err, nameOf(j.To.Generation, j.To.Mark), s.bootOnDisk())
	}
	return nil
}

func (s *session) verify(ctx context.Context, c change) error {
	if c.artifact == nil {
		return nil
	}
	if !c.verify {
		s.tookAll()
		return nil
	}
	if s.foundTouched(ctx) {
		s.point("verified")
		return nil
	}
	at := s.instantNow()
	have, err := s.readBack(ctx)
	if err != nil {
		return fmt.Errorf("read the rules back: %w", err)
	}
	differences, err := s.compare(ctx, c.artifact, have)
	if err != nil {
		return fmt.Errorf("compare with the kernel: %w", err)
	}
	s.point("verified")
	if len(differences) > 0 {
		return &DriftError{differences}
	}
	if err := s.prove(ctx, c, have); err != nil {
		return err
	}
	s.foundSame(at)
	return nil
}

// tries is how often a transaction is rebuilt when other tools change the
// ruleset at the same time.
const tries = 20

// load runs the steps from what the kernel holds to the wanted artifact.
func (s *session) load(ctx context.Context, j *journal, c change) error {
	armed := false
	prepare := func() error {
		if err := s.sysctlsOf(j, c.to, true); err != nil {
			return err
		}
		if c.wait > 0 && !armed {
			if err := s.arm(j.Pending); err != nil {
				return fmt.Errorf("start the confirm watcher: %w", err)
			}
			armed = true
			if err := s.saveJournal(j); err != nil {
				return err
			}
			c.to.Trial = j.Pending
			if err := s.saveGeneration(c.to); err != nil {
				return err
			}
			s.point("armed")
		}
		return nil
	}
	s.Backend = s.backendFor(c.artifact)
	for try := 1; ; try++ {
		err := s.steps(ctx, j, c, prepare)
		if err == nil {
			break
		}
		if !errors.Is(err, backend.ErrChanged) || try == tries || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Duration(try) * 10 * time.Millisecond)
	}
	if err := s.emptyOthers(ctx); err != nil {
		return err
	}
	if err := s.settleBans(c.artifact, markOf(c.to)); err != nil {
		return err
	}
	s.settleFollowed(c.artifact, markOf(c.to))
	return s.sysctlsOf(j, c.to, false)
}

// sysctlsOf sets what a generation wants. Where the point is to come back to
// something, a sysctl that cannot be set must not stand in the way.
func (s *session) sysctlsOf(j *journal, g *Generation, early bool) error {
	err := s.setSysctls(desired(g), early)
	if err == nil || !j.Back && j.What == applied {
		return err
	}
	s.note("%v", err)
	return nil
}

// steps reads the kernel and goes once through the steps from there.
func (s *session) steps(ctx context.Context, j *journal, c change, beforeSwitch func() error) error {
	steps, err := s.plan(ctx, c)
	if err != nil {
		return err
	}
	if err := s.keepGrace(j); err != nil {
		return err
	}
	steps = s.Backend.Marked(steps, markOf(c.to))
	prepared := false
	for i, step := range steps {
		s.progress(Progress{Done: i, Total: len(steps), Name: step.Name, Purpose: step.Purpose})
		if (step.Purpose == backend.Switch || step.Purpose == backend.Track) && !prepared {
			prepared = true
			if err := beforeSwitch(); err != nil {
				return err
			}
		}
		j.Step = string(step.Purpose) + " " + step.Name
		if err := s.saveStep(j.Step); err != nil {
			return err
		}
		s.point("before " + j.Step)
		began := time.Now()
		if err := step.Take(ctx); err != nil {
			return fmt.Errorf("%s %s: %w", step.Purpose, step.Name, err)
		}
		s.point("after " + j.Step)
		if step.Purpose == backend.Switch {
			s.adoptLate()
		}
		s.times.took(step.Purpose, began)
	}
	s.progress(Progress{Done: len(steps), Total: len(steps)})
	return nil
}

// keepGrace records the grace that the switch may end.
func (s *session) keepGrace(j *journal) error {
	if s.passage == nil || j.Back || j.Grace != nil {
		return nil
	}
	j.Grace = s.passage
	if j.Pending != nil && s.cur.Pending == nil {
		j.Pending.Grace = s.passage
	}
	return s.saveJournal(j)
}

// plan is the steps from what the kernel holds. A few elements need nothing read
// ahead where a reading has seen what it holds.
func (s *session) plan(ctx context.Context, c change) ([]backend.Step, error) {
	s.adoption, s.side, s.filled, s.passage = nil, nil, nil, nil
	s.bansFound, s.bansTrusted = nil, false
	if steps := s.assumed(ctx, c); steps != nil {
		return steps, nil
	}
	s.touched = nil
	began := time.Now()
	have, err := s.readAhead(ctx, c.artifact, c.verify)
	took(&s.times.Read, began)
	if err != nil {
		return nil, fmt.Errorf("read what the kernel holds: %w", err)
	}
	s.passage = passageOf(have)
	want, filled, err := s.withBans(ctx, c.artifact, have)
	if err != nil {
		return nil, fmt.Errorf("load the bans by command: %w", err)
	}
	steps, err := s.Backend.Steps(s.passing(want, have, c), have)
	if err != nil {
		return nil, fmt.Errorf("plan the transactions: %w", err)
	}
	return s.withTrack(filled(steps)), nil
}
