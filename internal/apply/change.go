package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/kernel/nft"
	"sluice/internal/program"
)

// change is one way from what the kernel holds to a generation, or to nothing.
type change struct {
	what     string // the event that it is
	to       *Generation
	artifact backend.Artifact // of to
	listing  *listing         // how artifact is kept, where that is known
	program  *program.Program // of to; nil: as the generation has it
	meant    *program.Program // of to, with only the passes that it needs; nil: the same
	fitted   *Fitted          // where artifact leaves out interfaces that are not there
	isNew    bool             // to was made for this change, and goes when it fails
	wait     time.Duration    // for a confirmation; 0: none is asked for
	confirm  bool             // to is confirmed by the change itself
	boot     *int             // boot generation afterwards, where it is neither kept nor to
	peers    []Peer           // who manages the host now
	verify   bool             // read back, and go back where it differs
	grace    *passage         // of to, where the change goes back to it
}

// DriftError says that the kernel does not hold what was loaded.
type DriftError struct{ Differences []backend.Difference }

func (e *DriftError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the kernel does not hold what was loaded: %d differences", len(e.Differences))
	for i, d := range e.Differences {
		if i == maxShown {
			fmt.Fprintf(&b, "\n  … and %d more", len(e.Differences)-maxShown)
			break
		}
		b.WriteString("\n  " + DescribeDifference(d))
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
	mark, err := s.Kernel.Mark(ctx)
	if err == nil && mark == "" {
		mark, err = s.markAgain(ctx)
	}
	if err != nil {
		return err
	}
	unmarked := false
	if mark == "" {
		have, err := s.Backend.Read(ctx, false)
		if err != nil {
			return fmt.Errorf("read what the kernel holds: %w", err)
		}
		unmarked = !have.Empty()
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
	if err := s.finish(j); err != nil {
		return fmt.Errorf("%w\n  the kernel holds %s; the next command writes the rest of the state, until when a boot loads %s", err, nameOf(j.To.Generation, j.To.Mark), s.bootOnDisk())
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
	at := instantNow()
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

// tries is how often a transaction is made anew when other tools change the
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
	for try := 1; ; try++ {
		err := s.steps(ctx, j, c, prepare)
		if err == nil {
			break
		}
		if !errors.Is(err, nft.ErrChanged) || try == tries || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Duration(try) * 10 * time.Millisecond)
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
	steps = withMark(steps, markOf(c.to))
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
		if step.Purpose == backend.Track {
			err = s.adoptConnections(ctx)
		} else {
			err = take(ctx, s.Kernel, step)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", step.Purpose, step.Name, err)
		}
		s.point("after " + j.Step)
		if step.Purpose == backend.Switch {
			s.adoptLate(ctx)
		}
		s.times.took(step.Purpose, began)
	}
	s.progress(Progress{Done: len(steps), Total: len(steps)})
	return nil
}

// keepGrace writes down the grace that the switch may end.
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
// ahead where a witness has seen what it holds.
func (s *session) plan(ctx context.Context, c change) ([]backend.Step, error) {
	s.adoption, s.side, s.filled, s.passage = nil, nil, nil, nil
	if steps := s.assumed(ctx, c); steps != nil {
		return steps, nil
	}
	s.touched = nil
	began := time.Now()
	have, err := s.readAhead(ctx, c.verify)
	took(&s.times.Read, began)
	if err != nil {
		return nil, fmt.Errorf("read what the kernel holds: %w", err)
	}
	s.passage = passageOf(have)
	want, bans, err := s.withBans(ctx, c.artifact, have)
	if err != nil {
		return nil, fmt.Errorf("bring in the bans by command: %w", err)
	}
	steps, err := s.Backend.Steps(s.passing(want, have, c), have)
	if err != nil {
		return nil, fmt.Errorf("plan the transactions: %w", err)
	}
	return s.withTrack(bans.insert(steps)), nil
}

// finish writes down a change that the kernel has made. It may run twice.
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
			g.event(what, j.By, j.Started)
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

// goBack brings back what was there before a change that failed, and says what
// the kernel holds now. It does not heed the context, whose end may be why.
func (s *session) goBack(ctx context.Context, j *journal, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goBackTime)
	defer cancel()
	if err := s.forget(ctx, j); err != nil {
		return fmt.Errorf("%w\n  going back failed too: %w\n  hint: %s", cause, err, wayOut)
	}
	before := nameOf(j.From.Generation, j.From.Mark)
	if j.Unmarked {
		before = "rules that bear no mark of a generation"
	}
	return fmt.Errorf("%w\n  nothing changed: the kernel holds %s, as before", cause, before)
}

const (
	goBackTime = 2 * time.Minute
	wayOut     = "sluice status says what the kernel holds; sluice restore loads the last confirmed policy, sluice remove takes everything away"
)

// forget undoes what a change did: the rules, where the switch was made, and
// else what was filled in for it; sysctls; the generation made for it.
func (s *session) forget(ctx context.Context, j *journal) error {
	mark, err := s.Kernel.Mark(ctx)
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
		return fmt.Errorf("what ran before bore no mark and is not in this state directory")
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

// drop ends a journal whose change did not come about.
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
