package drift

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/base/tell"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	machine "sluice/internal/system/host"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/nft"
)

// Watcher looks after the rules of one network namespace.
type Watcher struct {
	Host *engine.Host // with its Netns
	// Look is Glimpse of the host, which is known then: no ban is under way.
	Look func(context.Context) (*apply.Glimpse, error)
	// Verify proves what runs beside the lock, and what is beside it.
	Verify func(context.Context) (*engine.Verified, error)
	// Restore puts back what should run; nil: nobody does.
	Restore func(ctx context.Context, why string) error
	// Restores says whether it is put back now; nil: it always is.
	Restores func() bool
	Alert    func(apply.Alert)
	// Found is told what differs each time that it was looked; nil: nobody is.
	Found func([]apply.Finding)
	Note  func(error)

	state    apply.Watching
	known    uint32    // number of the ruleset that was proved last, or is ours; 0: none
	read     time.Time // that was trusted last
	verified time.Time
	busy     time.Duration
	torn     int // how often somebody changed the ruleset under a proof
	sums     sums
	// poll and rest are pollTime and restTime; tests look more often.
	poll, rest time.Duration
	all        bool // is to be proved, whatever is known
	noted      string

	mu      sync.Mutex
	heard   []nft.Change
	touched chan struct{}
}

const (
	// Of changes that follow closely all are looked at together.
	settleTime = 100 * time.Millisecond
	settleMost = time.Second
	// busyTime is until it is looked again whether the firewall is being changed, each time
	// twice the one before.
	busyTime = 250 * time.Millisecond
	busyMost = 2 * time.Second
	// restTime is between two proofs: who changes rules all the time does not keep a
	// processor busy.
	restTime  = 3 * time.Second
	pollTime  = 30 * time.Second // at most, between two looks at what sends no notifications
	againTime = time.Second      // behind a socket that failed
	mostTorn  = 3
	mostHeard = 64
	// mostRestores within restoresIn stop restoring.
	mostRestores = 3
	restoresIn   = 10 * time.Minute
	mostFindings = 20
)

// Run looks until the context ends.
func (w *Watcher) Run(ctx context.Context) error {
	w.touched, w.poll, w.rest = make(chan struct{}, 1), cmp.Or(w.poll, pollTime), cmp.Or(w.rest, restTime)
	w.begin()
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		for ctx.Err() == nil {
			if err := w.Host.Netns.Do(func() error { return nft.Watch(ctx, w.hear) }); err != nil {
				w.note(err)
				select {
				case <-ctx.Done():
				case <-time.After(againTime):
				}
			}
		}
	})
	due, poll := time.NewTimer(settleTime), time.NewTimer(w.jittered())
	defer due.Stop()
	defer poll.Stop()
	var first time.Time
	for {
		var again time.Duration
		select {
		case <-ctx.Done():
			return nil
		case <-w.touched:
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			due.Reset(max(0, min(settleTime, first.Add(settleMost).Sub(now))))
			continue
		case <-due.C:
			first = time.Time{}
			again = w.look(ctx)
		case <-poll.C:
			poll.Reset(w.jittered())
			w.peak()
			w.all = w.polled() || w.all
			again = w.look(ctx)
		}
		if again > 0 {
			due.Reset(again)
		}
	}
}

// jittered spreads the namespaces of a host, and hosts that started together.
func (w *Watcher) jittered() time.Duration {
	return w.poll - time.Duration(time.Now().Nanosecond())%(w.poll/5)
}

// begin takes up what an agent before knew.
func (w *Watcher) begin() {
	state, err := w.Host.Watched()
	if err != nil {
		w.note(err)
	}
	if state != nil {
		w.state = *state
	}
	w.polled() // what there is now is no change
}

func (w *Watcher) polled() (changed bool) {
	err := w.Host.Netns.Do(func() (err error) {
		changed, err = w.sums.changed()
		return err
	})
	if err != nil {
		w.note(err)
	}
	return changed
}

// peak remembers the most entries that the connection table had.
func (w *Watcher) peak() {
	var n uint64
	err := w.Host.Netns.Do(func() (err error) {
		n, err = conntrack.Count()
		return err
	})
	if err != nil {
		w.note(err)
		return
	}
	if now := time.Now(); n > 0 && (n > w.state.Peak || now.Sub(w.state.PeakAt) > apply.PeakTime) {
		w.state.Peak, w.state.PeakAt = n, now.Truncate(time.Second)
		w.keep()
	}
}

// note tells an error once.
func (w *Watcher) note(err error) {
	if text := err.Error(); text != w.noted {
		w.noted = text
		w.Note(err)
	}
}

func (w *Watcher) hear(c nft.Change) {
	w.mu.Lock()
	if c.Generation != 0 {
		c.Name = tell.Printable(c.Name)
		w.heard = append(w.heard, c)
		w.heard = w.heard[max(0, len(w.heard)-mostHeard):]
	}
	w.mu.Unlock()
	select {
	case w.touched <- struct{}{}:
	default: // one that waits already is enough
	}
}

// by is who changed the ruleset since it was known, as far as that was heard. A command of
// Sluice that was in between has processes of the same names.
func (w *Watcher) by() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, c := range w.heard {
		text := fmt.Sprintf("%s (process %d)", c.Name, c.PID)
		if c.Name == "" || slices.Contains(out, text) {
			continue
		}
		out = append(out, text)
	}
	const most = 3
	return strings.Join(out[max(0, len(out)-most):], ", ")
}

// forget leaves out the changes that are known by now.
func (w *Watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = slices.DeleteFunc(w.heard, func(c nft.Change) bool { return int32(c.Generation-w.known) <= 0 }) //nolint:gosec // numbers that wrap
}

// look finds out whether anybody else changed anything, and what. It is to be called again
// after the time that it gives, where that is not 0.
func (w *Watcher) look(ctx context.Context) (again time.Duration) {
	g, err := w.Look(ctx)
	var busy *apply.BusyError
	if errors.As(err, &busy) {
		w.busy = min(2*max(w.busy, busyTime/2), busyMost)
		return w.busy
	}
	w.busy = 0
	if err != nil {
		if ctx.Err() == nil {
			w.note(err)
		}
		return 0
	}
	w.startAnew(g)
	if g.Generation == 0 || g.Closed {
		var findings []apply.Finding
		if g.Closed {
			findings = []apply.Finding{{Kind: apply.FoundClosed, Text: "the confirmed policy could not be restored: only ssh comes in"}}
		}
		w.over(w.found(g, findings, false))
		w.know(g)
		return 0
	}
	beside := w.beside()
	if !w.all && w.isKnown(g, beside) {
		w.know(g)
		w.over(w.found(g, w.standing(g), false))
		if w.repair(ctx, g) {
			return settleTime
		}
		return 0
	}
	if g.Unmarked && w.empty() {
		w.over(w.found(g, append([]apply.Finding{gone(g.Generation)}, sysctls(g)...), false))
		w.know(g)
		if w.repair(ctx, g) {
			return settleTime
		}
		return 0
	}
	if rest := w.rest - time.Since(w.verified); rest > 0 {
		return rest
	}
	began := time.Now()
	v, err := w.Verify(ctx)
	w.verified = time.Now()
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		// It is tried again with each look.
		w.over(w.found(g, append(sysctls(g), unproved(err)), false))
		return 0
	}
	now, err := w.Look(ctx)
	if errors.As(err, &busy) { // a command was at work under the proof
		w.verified, w.busy = time.Time{}, busyTime
		return w.busy
	}
	if err == nil && (now.Generation != g.Generation || !now.Changed.Equal(g.Changed) || now.Number != g.Number) {
		// What was read was read of two rulesets. Where that does not end, it is taken as it is.
		if w.torn++; w.torn < mostTorn || now.Generation != g.Generation {
			w.verified = time.Time{}
			return settleTime
		}
	}
	w.all, w.torn = false, 0
	w.state.Proved, w.state.Beside, w.state.Took = w.verified.Truncate(time.Millisecond), beside, w.verified.Sub(began).Seconds()
	findings := append(findingsOf(v), sysctls(g)...)
	if g.Unmarked {
		findings = append(findings, apply.Finding{Kind: apply.FoundMark, Text: fmt.Sprintf("table sluice_generation, which says that generation %d runs, was deleted", g.Generation)})
	}
	w.over(w.found(g, findings, true))
	if v.Proved && v.Form == 0 && !g.Unmarked && !g.Ours && w.torn == 0 {
		// So the next ban has not to be proved.
		if g.Read, err = w.Host.Seen(ctx, g); err != nil {
			w.note(err)
		}
		g.Ours = !g.Read.IsZero()
	}
	w.know(g)
	if w.repair(ctx, g) {
		return settleTime
	}
	return 0
}

// isKnown says that there is nothing to prove.
func (w *Watcher) isKnown(g *apply.Glimpse, beside uint64) bool {
	if w.known != 0 && g.Number == w.known {
		return true
	}
	// A reading that is new may have been made behind what another tool did beside.
	return g.Ours && (g.Read.Equal(w.read) || len(w.state.Findings) == 0 && beside == w.state.Beside && !w.state.Proved.IsZero())
}

func (w *Watcher) know(g *apply.Glimpse) {
	w.known = g.Number
	if g.Ours {
		w.read = g.Read
	}
	w.forget()
}

// beside tells the chains of other tools; 0 where they cannot be read.
func (w *Watcher) beside() (sum uint64) {
	err := w.Host.Netns.Do(func() (err error) {
		sum, err = nft.Beside(machine.OwnTables...)
		return err
	})
	if err != nil {
		w.note(err)
	}
	return sum
}

// empty says that the kernel has no rules of Sluice.
func (w *Watcher) empty() bool {
	var chains []string
	err := w.Host.Netns.Do(func() (err error) {
		chains, err = nft.Chains(machine.OwnTables[0])
		return err
	})
	return err == nil && len(chains) == 0
}

// found compares findings with those before, alerts of what is new, and gives what is over.
// Proved says that all there is was looked at.
func (w *Watcher) found(g *apply.Glimpse, findings []apply.Finding, proved bool) (over []apply.Finding) {
	keep := w.state.Generation != g.Generation
	if proved {
		findings, keep = w.unaccepted(findings), true
	}
	by, now := w.by(), time.Now().Truncate(time.Millisecond)
	var fresh []apply.Finding
	for i := range findings {
		f := &findings[i]
		if old := slices.IndexFunc(w.state.Findings, f.Same); old >= 0 {
			*f = w.state.Findings[old]
			continue
		}
		f.Since = now
		if f.Kind != apply.FoundSysctl && f.Kind != apply.FoundException {
			f.By = by
		}
		fresh = append(fresh, *f)
	}
	over = slices.DeleteFunc(slices.Clone(w.state.Findings), func(f apply.Finding) bool { return slices.ContainsFunc(findings, f.Same) })
	w.state.Generation, w.state.Findings = g.Generation, findings
	if w.Found != nil {
		w.Found(findings)
	}
	if len(fresh) > 0 {
		text := told(fresh)
		if slices.ContainsFunc(fresh, func(f apply.Finding) bool { return f.By != "" }) {
			text += "\n  changed by " + by
		}
		w.alert(alert.Drift, text, fresh)
	}
	if keep || len(fresh)+len(over) > 0 {
		w.keep()
	}
	return over
}

func (w *Watcher) over(findings []apply.Finding) {
	if len(findings) > 0 {
		w.alert(alert.Over, "over: "+told(findings), findings)
		w.keep()
	}
}

// unaccepted leaves out what other tools had beside the rules when that was first looked
// at: of it, verify tells.
func (w *Watcher) unaccepted(findings []apply.Finding) []apply.Finding {
	first := w.state.Accepted == nil
	accepted := []string{}
	out := slices.DeleteFunc(slices.Clone(findings), func(f apply.Finding) bool {
		if f.Kind.Foreign() && (first || slices.Contains(w.state.Accepted, f.Text)) {
			accepted = append(accepted, f.Text)
			return true
		}
		return false
	})
	w.state.Accepted = accepted
	return out
}

// told is what findings say, the first ones alone.
func told(list []apply.Finding) string {
	var b strings.Builder
	const most = 3
	for i, f := range list {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(list)-most)
			break
		}
		if i > 0 {
			b.WriteString("\n  ")
		}
		b.WriteString(f.Text)
	}
	return b.String()
}

func (w *Watcher) alert(event, text string, findings []apply.Finding) {
	a := apply.Alert{
		Time: time.Now().Truncate(time.Millisecond), Event: event, Namespace: w.Host.Namespace,
		Generation: w.state.Generation, Text: text, Findings: findings[:min(len(findings), mostFindings)],
	}
	w.state.Last = &a
	w.Alert(a)
}

func (w *Watcher) keep() {
	if w.state.Findings == nil {
		w.state.Findings = []apply.Finding{}
	}
	if err := w.Host.KeepWatched(&w.state); err != nil {
		w.note(err)
	}
}
