package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/drift"
	"sluice/internal/agent/work"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// proving bounds how many proofs run at once, however many namespaces there are.
var proving = make(chan struct{}, 2)

// restoreWait is how long a restore waits for whoever changes the firewall.
const restoreWait = 20 * time.Second

// watch looks after the rules.
func (s *space) watch() error {
	h := *s.Host
	h.Netns = s.at
	var preparing sync.WaitGroup
	defer preparing.Wait()
	prepared := 0
	w := &drift.Watcher{
		Host: &h, Note: s.note, Alert: s.Alerts.Send, Found: s.found,
		Look: func(ctx context.Context) (g *apply.Glimpse, err error) {
			waited := s.doBy(ctx, s.look, func() { g, err = s.Host.Glimpse(ctx) })
			if err = cmp.Or(waited, err); err == nil && s.Published && g.Generation != prepared {
				prepared = g.Generation
				preparing.Go(s.prepareMetrics)
			}
			return g, err
		},
		Verify: func(ctx context.Context) (*engine.Verified, error) {
			return worked[*engine.Verified](ctx, s, work.Order{Operation: "verify", Beside: true})
		},
	}
	w.Restores = s.putsBack
	w.Restore = func(ctx context.Context, why string) error {
		by := apply.Author{Via: "agent"}
		if err := by.Because(why); err != nil {
			s.note(err)
		}
		_, err := worked[*apply.Outcome](ctx, s, work.Order{Operation: "restore", Wait: restoreWait, By: by})
		if m := s.inFleet.Load(); m != nil && err == nil {
			m.PutBack()
		}
		return err
	}
	return w.Run(s.ctx)
}

// putsBack says whether what somebody changed is put back: the agent's file or a part of the
// fleet says so.
func (s *space) putsBack() bool {
	if s.Restores {
		return true
	}
	running, err := s.Host.Running(nil)
	return err == nil && running.Policy.Fleet != nil && running.Policy.Fleet.Restore
}

// place is one among those who prove.
func place(ctx context.Context) (free func(), err error) {
	select {
	case proving <- struct{}{}:
		return func() { <-proving }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// worked has a process do what the agent itself wants to know.
func worked[T any](ctx context.Context, s *space, o work.Order) (out T, err error) {
	free, err := place(ctx)
	if err != nil {
		return out, err
	}
	defer free()
	defer quieten()
	result, err := work.Run(ctx, s.Command, o, func(api.Line) {})
	if err == nil {
		err = json.Unmarshal(result, &out)
	}
	return out, err
}
