package fleet

import (
	"context"
	"errors"
	"fmt"

	"sluice/internal/fleet/wire"
)

// controllerProbe asks whether the policy leaves the way to the controller open.
const controllerProbe = "controller"

// unknownError says that the controller is gone, with or without the policy.
type unknownError struct{ error }

func (e *unknownError) Unwrap() error { return e.error }

// probe asks the probes until each has succeeded, or the time is over.
func (m *Member) probe(ctx context.Context, probes []string) error {
	var results []wire.Probe
	var failed error
	for _, name := range probes {
		err := m.probeOne(ctx, name)
		if context.Cause(ctx) != nil && !errors.Is(context.Cause(ctx), errLate) {
			return context.Cause(ctx)
		}
		p := wire.Probe{Probe: name, Ok: err == nil}
		if err != nil {
			p.Error = err.Error()[:min(len(err.Error()), 1000)]
			if failed == nil {
				failed = fmt.Errorf("probe %s: %w", name, err)
			}
		}
		results = append(results, p)
	}
	m.passing(func(r *wire.Report) { r.Probes = results })
	return failed
}

// mostTries is how often a probe is tried: one packet may be lost.
const mostTries = 3

func (m *Member) probeOne(ctx context.Context, name string) (err error) {
	for try := range mostTries {
		if try > 0 {
			sleep(ctx, m.Times.Again/2)
		}
		trying, stop := context.WithTimeout(ctx, m.Times.Try)
		if name == controllerProbe {
			err = m.Controllers.Reach(trying)
		} else {
			err = m.Engine.Probe(trying, name)
		}
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if name == controllerProbe {
		return m.lostController(ctx, err)
	}
	return err
}

// lostController tells a policy that cuts the host off from a controller that is gone. What
// lives of the stream from before says that the controller does; where that is dead too, it
// is asked until the time is over.
func (m *Member) lostController(ctx context.Context, err error) error {
	m.mu.Lock()
	s := m.stream
	m.mu.Unlock()
	if s != nil && m.alive(ctx, s, m.Times.Try) == nil {
		return fmt.Errorf("new connections to the controller fail; the one that was open still works: %w", err)
	}
	for {
		sleep(ctx, m.Times.Try)
		if ctx.Err() != nil {
			return &unknownError{fmt.Errorf("the controller cannot be reached by any connection: %w", err)}
		}
		trying, stop := context.WithTimeout(ctx, m.Times.Try)
		again := m.Controllers.Reach(trying)
		stop()
		if again == nil {
			return nil
		}
	}
}
