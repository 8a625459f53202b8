package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// errNewer ends what is under way for a newer word of the controller.
var errNewer = errors.New("the controller has sent something newer")

// pursueAll brings into force what is desired, until the context ends.
func (m *Member) pursueAll(ctx context.Context) {
	again := m.Times.Again
	var retry <-chan time.Time
	nudge(m.wake) // what an agent before did not end
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-retry:
		}
		m.mu.Lock()
		d := m.state.Desired
		var doing context.Context
		doing, m.end = context.WithCancelCause(ctx)
		m.aim = m.state.aimOf(&d)
		m.mu.Unlock()
		err := m.pursue(doing, &d)
		m.mu.Lock()
		newer := context.Cause(doing) != nil
		m.end(nil)
		m.aim = aim{}
		if err == nil && !newer {
			m.given = nil
		}
		m.mu.Unlock()
		retry = nil
		switch {
		case newer:
			nudge(m.wake)
		case err == nil:
			again = m.Times.Again
		default:
			m.note(err)
			m.report(func(r *wire.Report) { r.Error = m.short(err) })
			retry = time.After(again/2 + jitter(again))
			again = min(2*again, m.Times.Poll)
		}
	}
}

// mostSaid is how many bytes of a text are reported.
const mostSaid = 4000

// short is an error as it is reported.
func (m *Member) short(err error) string {
	text := m.known(err.Error())
	if len(text) > mostSaid {
		text = text[:mostSaid] + "…"
	}
	return text
}

// known calls the files of bundles as operators know them: by their names in the repository.
func (m *Member) known(text string) string {
	return regexp.MustCompile(regexp.QuoteMeta(m.bundles()+"/")+"[0-9]+/").ReplaceAllString(text, "")
}

// pursue is one attempt. The error is of one that is to be tried again.
func (m *Member) pursue(ctx context.Context, d *wire.Desired) error {
	if m.detached() {
		m.observe(ctx)
		err := m.prefetch(ctx, d)
		m.report(func(r *wire.Report) {
			r.Order, r.Error = d.Order, "a policy of the host's own runs: somebody has detached it from the fleet"
		})
		return err
	}
	switch now := m.now(); {
	case d.Bundle == 0 || now.Done == now.aimOf(d):
		m.report(func(r *wire.Report) {
			r.Order, r.Labels = d.Order, now.Labels
			if d.Prefetch == nil && r.Bundle != d.Bundle { // nobody wants any more what failed
				r.Error = cmp.Or(m.distrusted, m.untaken)
			}
		})
		m.mu.Lock()
		spaced := (m.spaced || len(now.Report.Failed) > 0) && d.Bundle != 0 && now.Report.State == wire.StateConfirmed
		m.mu.Unlock()
		if spaced {
			if err := m.takeGuests(ctx, d, func(*State) {}); err != nil {
				return err
			}
		}
		if err := m.prefetch(ctx, d); err != nil || d.Prefetch != nil {
			return err
		}
		return m.lists(ctx, d)
	case now.Aim != now.aimOf(d):
		m.begin(now.aimOf(d), d, wire.StateNone)
	default:
		m.report(func(r *wire.Report) { r.Order = d.Order })
	}
	file, undo, err := m.fetch(ctx, d)
	if err != nil {
		return m.refuse(ctx, err)
	}
	m.undoFiles = undo
	defer func() { m.undoFiles = nil }()
	err = m.bring(ctx, d, file)
	if err == nil && m.Report().State == wire.StateConfirmed {
		err = m.lists(ctx, d)
	}
	return err
}

// begin is where a report of something else begins.
func (m *Member) begin(a aim, d *wire.Desired, state wire.State) {
	m.update(func(s *State) {
		s.Aim, s.Done = a, aim{}
		r := &s.Report
		if r.Labels != a.Labels { // what runs is of other parts
			r.Labels, r.Proved = a.Labels, time.Time{}
		}
		r.Order, r.Rollout, r.Bundle, r.State, r.Error, r.Probes = d.Order, a.Rollout, a.Bundle, state, "", nil
	})
}

// refuse reports what is not put into force. What the signatures forbid is asked again when
// they are others; the error is of what may be over by itself.
func (m *Member) refuse(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var refused *RefusedError
	final := errors.As(err, &refused)
	if !final && !distrusted(err) {
		return err
	}
	m.fail(wire.StateRefused, err, final)
	return nil
}

// fail reports the end of an attempt; final says that it is not made again. Who hears of it finds
// the files of what runs.
func (m *Member) fail(state wire.State, err error, final bool) {
	m.note(err)
	if m.undoFiles != nil {
		m.undoFiles()
		m.undoFiles = nil
	}
	m.update(func(s *State) {
		s.Report.State, s.Report.Error = state, m.short(err)
		if final {
			s.Done = s.Aim
		}
	})
}

// distrusted says that an error is of what is signed, or is not.
func distrusted(err error) bool {
	for _, is := range []error{
		trust.ErrMalformed, trust.ErrTooLarge, trust.ErrUnsigned, trust.ErrThreshold, trust.ErrBelowFloor, trust.ErrExpired,
		trust.ErrForeignFleet, trust.ErrWrongHost, trust.ErrRolledBack, trust.ErrHash, trust.ErrLevel,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// bring applies a policy on trial, and ends the trial.
func (m *Member) bring(ctx context.Context, d *wire.Desired, file string) error {
	now, err := m.Engine.Now(ctx)
	if err != nil {
		return err
	}
	ours := m.Report().State
	onTrial := now.Pending && now.File == file && (ours == wire.StatePending || ours == wire.StateProved)
	if now.Pending && !onTrial {
		return fmt.Errorf("generation %d waits for confirmation, and nothing else is applied meanwhile", now.Generation)
	}
	if !onTrial && (ours == wire.StatePending || ours == wire.StateProved) && (now.File != file || now.Generation != atoi(m.Report().Generation)) {
		m.back(ctx, errors.New("it was not confirmed in time, and was rolled back while no agent ran"))
		return nil
	}
	a := &Applied{Generation: now.Generation, Pending: now.Pending, Until: now.Until}
	probes, unread := m.Engine.Probes(file) // by what is signed: a controller may lie
	if !onTrial {
		if err := m.reachable(ctx, d, probes); err != nil {
			return err
		}
		if err := m.still(ctx); err != nil {
			return err
		}
		// Where the bundle runs already, members alone may differ.
		if a, err = m.apply(ctx, d, file, !now.Pending && now.File == file); err != nil { // what cannot be read among it
			return m.refuse(ctx, err)
		}
	}
	return m.try(ctx, d, a, probes, unread)
}

// reachable proves beforehand what the probes ask for afterwards: a policy cannot be judged
// by a controller that cannot be reached without it.
func (m *Member) reachable(ctx context.Context, d *wire.Desired, probes []string) error {
	if !slices.Contains(probes, controllerProbe) {
		return nil
	}
	if err := m.Controllers.Reach(ctx); err != nil {
		return fmt.Errorf("bundle %d is not applied before a controller can be reached, which its roll-out requires: %w", d.Bundle, err)
	}
	return nil
}

// oldWord is how long ago a controller has said what is brought into force without a question.
const oldWord = 10 * time.Second

// still asks whether that is desired yet which a controller has desired a while ago: it may not
// have been to be had since, and much may have been desired after it. Where no controller
// answers, it holds.
func (m *Member) still(ctx context.Context) error {
	m.mu.Lock()
	old := time.Since(m.told) > oldWord
	m.mu.Unlock()
	if !old {
		return nil
	}
	asking, stop := context.WithTimeout(ctx, m.Times.Dead)
	defer stop()
	if err := m.ask(asking); err != nil {
		m.note(err)
	}
	return context.Cause(ctx)
}

func (m *Member) apply(ctx context.Context, d *wire.Desired, file string, keepEdits bool) (*Applied, error) {
	confirm := time.Duration(d.ConfirmSeconds) * time.Second
	if confirm == 0 {
		confirm = m.Times.Confirm
	}
	a, err := m.Engine.Apply(ctx, file, confirm, keepEdits, func() {
		m.passing(func(r *wire.Report) { r.State = wire.StateChecked })
	})
	if err != nil {
		return nil, err
	}
	if a.Edited {
		a.Until = time.Now().Add(confirm) // for its probes
	}
	m.passing(func(r *wire.Report) { r.State, r.Generation = wire.StatePending, itoa(a.Generation) })
	m.observe(ctx) // which writes it down
	return a, nil
}

// try proves what is on trial, asks its probes, and confirms it or goes back; elements of sets
// that are confirmed already go back too where a probe fails. What ran
// already was judged before, and there is nothing to go back from: how the kernel differs
// from it is drift.
func (m *Member) try(ctx context.Context, d *wire.Desired, a *Applied, probes []string, unread error) error {
	if !a.Pending && !a.Edited {
		differs, err := m.Engine.Verify(ctx)
		if err != nil {
			return err
		}
		m.Found(differs)
		return m.confirmed(ctx, d)
	}
	deadline, stop := context.WithDeadlineCause(ctx, a.Until, errLate)
	defer stop()
	if !a.Proved {
		differs, err := m.Engine.Verify(deadline)
		if err == nil && differs != "" {
			err = errors.New("the kernel does not do what the policy says: " + differs)
		}
		if err != nil {
			return m.undo(ctx, a, err)
		}
	}
	m.passing(func(r *wire.Report) {
		now := m.Clock().Truncate(time.Second)
		r.State, r.Proved, r.Verified = wire.StateProved, now, now
	})
	if unread != nil {
		return m.undo(ctx, a, fmt.Errorf("its probes cannot be read: %w", unread))
	}
	if err := m.probe(deadline, probes); err != nil {
		return m.undo(ctx, a, err)
	}
	if a.Pending {
		if err := m.Engine.Confirm(deadline); err != nil {
			return m.undo(ctx, a, fmt.Errorf("it cannot be confirmed: %w", err))
		}
	}
	return m.confirmed(ctx, d)
}

// confirmed reports what is confirmed.
func (m *Member) confirmed(ctx context.Context, d *wire.Desired) error {
	err := m.takeGuests(ctx, d, func(s *State) {
		s.Report.State, s.Report.Error, s.Done = wire.StateConfirmed, "", s.Aim
		s.Report.Members = s.Aim.Members
	})
	m.prune(d.Bundle)
	return err
}

// errLate says that nobody has confirmed in time.
var errLate = errors.New("the time to confirm it is over")

// undo goes back from what is on trial. Where both the policy and the way to the controller
// are dead, the engine's own watcher does it, controller or not.
func (m *Member) undo(ctx context.Context, a *Applied, why error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errNewer) {
		return context.Cause(ctx) // the agent ends: the next one goes on, or the watcher goes back
	}
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), m.Times.Dead)
	defer stop()
	var wait *unknownError
	if errors.As(why, &wait) {
		sleep(ctx, time.Until(a.Until))
		if context.Cause(ctx) == nil {
			sleep(ctx, time.Second) // for the watcher
		}
	}
	now, err := m.Engine.Now(ending)
	if err == nil && (now.Pending || a.Edited) && now.Generation == a.Generation {
		err = m.Engine.Rollback(ending)
	}
	if err != nil {
		why = fmt.Errorf("%w; going back: %w", why, err)
	}
	m.back(ending, why)
	if errors.Is(context.Cause(ctx), errNewer) {
		return errNewer
	}
	return nil
}

// back reports that an older policy runs again.
func (m *Member) back(ctx context.Context, why error) {
	m.observe(ctx)
	m.fail(wire.StateReverted, why, true)
	m.reprove(ctx)
}

// observe reports what should run.
func (m *Member) observe(ctx context.Context) {
	now, err := m.Engine.Now(ctx)
	if err != nil {
		m.note(err)
		m.save()
		return
	}
	m.report(func(r *wire.Report) {
		running, generation := m.bundleOf(now.File), itoa(now.Generation)
		if r.Running != running || r.Mark != now.Mark {
			r.Proved, r.Drift = time.Time{}, ""
		}
		r.Running, r.Generation, r.Mark = running, generation, now.Mark
	})
	nudge(m.lives.wake) // they are judged by what runs
}

// reprove says since when what runs again is proved.
func (m *Member) reprove(ctx context.Context) {
	if m.Report().Running == 0 {
		return
	}
	differs, err := m.Engine.Verify(ctx)
	if err != nil {
		m.note(fmt.Errorf("what runs again is not proved: %w", err))
		return
	}
	m.Found(differs)
}

// PutBack is to be called when what was found last to differ was put back.
func (m *Member) PutBack() {
	m.once.Do(m.begun)
	m.report(func(r *wire.Report) {
		if r.Drift != "" {
			r.Restored, r.Undone = m.Clock().Truncate(time.Second), r.Drift
		}
	})
}

// foundTime is how often a host without drift says so again.
const foundTime = time.Hour

// Found takes what the agent's watch over the rules found last: how what runs differs from
// what was meant, in packets; "" says that it was proved not to.
func (m *Member) Found(differs string) {
	m.once.Do(m.begun)
	differs = m.known(differs)
	differs = differs[:min(len(differs), mostSaid)]
	now := m.Clock().Truncate(time.Second)
	if r := m.Report(); r.Drift == differs && (differs != "" || !r.Proved.IsZero() && now.Sub(r.Verified) < foundTime) {
		return
	}
	m.report(func(r *wire.Report) {
		if r.Drift = differs; differs != "" {
			m.wasProved(false)
			nudge(m.lives.wake)
			r.Proved = time.Time{}
			return
		}
		r.Verified = now
		if r.Proved.IsZero() && r.Running != 0 {
			r.Proved = now
		}
	})
}
