package drift

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// repair puts back what should run, where that is wanted and something is to be put back. It
// says whether it did anything.
func (w *Watcher) repair(ctx context.Context, g *apply.Glimpse) bool {
	restorable := slices.ContainsFunc(w.state.Findings, func(f apply.Finding) bool { return f.Kind.Restorable() })
	if w.Restore == nil || !restorable || !g.Restores || !w.state.Stopped.IsZero() || w.Restores != nil && !w.Restores() {
		return false
	}
	why := "drift"
	if by := w.state.Findings[0].By; by != "" {
		why = "drift, by " + by
	}
	began, before := time.Now(), w.state.Findings
	w.state.Restores = append(w.recent(began), began.Truncate(time.Millisecond))
	err := w.Restore(ctx, why)
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		err = w.proved(ctx)
	}
	if err != nil {
		w.alert(alert.NotRestored, fmt.Sprintf("what should run could not be put back: %v", err), before)
	} else {
		w.alert(alert.Restored, fmt.Sprintf("generation %d was put back and proved, after %s", g.Generation, time.Since(began).Round(time.Millisecond)), before)
	}
	if len(w.state.Restores) >= mostRestores {
		w.state.Stopped, w.state.StoppedAt = time.Now().Truncate(time.Millisecond), g.Changed
		w.alert(alert.Stopped, fmt.Sprintf("%d restores in %s: nothing more is put back until somebody restores or applies", mostRestores, restoresIn), before)
	}
	w.keep()
	return true
}

// proved takes what was restored for what runs, where a proof says so.
func (w *Watcher) proved(ctx context.Context) error {
	// What is changed under the proof is not known, and looked at again.
	g, err := w.calm(ctx)
	var v *engine.Verified
	if err == nil {
		v, err = w.Verify(ctx)
		w.verified = time.Now()
	}
	if err != nil {
		return fmt.Errorf("it was put back, but is not proved: %w", err)
	}
	var still []string
	w.state.Proved = w.verified.Truncate(time.Millisecond)
	w.know(g) // what was heard is told
	w.found(g, append(findingsOf(v), sysctls(g)...), true)
	for _, f := range w.state.Findings {
		if !f.Kind.Foreign() {
			still = append(still, f.Text)
		}
	}
	if len(still) > 0 {
		return fmt.Errorf("it was put back, but no longer holds: %s", strings.Join(still, "; "))
	}
	return nil
}

// calm waits for whoever is changing the firewall and gives what runs then.
func (w *Watcher) calm(ctx context.Context) (*apply.Glimpse, error) {
	for pause := busyTime; ; pause = min(2*pause, busyMost) {
		g, err := w.Look(ctx)
		if busy := (*apply.BusyError)(nil); !errors.As(err, &busy) {
			return g, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// recent are the restores that count still.
func (w *Watcher) recent(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(w.state.Restores), func(t time.Time) bool { return now.Sub(t) > restoresIn || t.After(now) })
}

// startAnew restores again once somebody has loaded what should run. An agent that loads
// rules which are gone, since it follows the host, is nobody.
func (w *Watcher) startAnew(g *apply.Glimpse) {
	if !w.state.Stopped.IsZero() && !g.Changed.Equal(w.state.StoppedAt) && g.By.User != "" {
		w.state.Stopped, w.state.StoppedAt, w.state.Restores = time.Time{}, time.Time{}, nil
		w.keep()
	}
}
