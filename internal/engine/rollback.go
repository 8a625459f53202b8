package engine

import (
	"context"
	"fmt"

	"sluice/internal/engine/apply"
)

// Rollback goes to generation n, or for apply.Before to what was before the running one,
// unless that locks out somebody who is logged in over ssh.
func (h *Host) Rollback(ctx context.Context, n int, o apply.Options) (*apply.Outcome, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*apply.Outcome, error) { return h.Rollback(ctx, n, o) })
	}
	facts, err := Facts(ctx, h.State, h.Namespace, h.Session)
	if err != nil {
		return nil, err
	}
	out, err := h.Host.Rollback(ctx, n, o, apply.SSHClients(facts))
	if err != nil {
		return nil, err
	}
	return out, h.afterBack(ctx, out)
}

// afterBack applies the exceptions that hold where an older policy runs again. What
// keeps them out is a note: the policy runs.
func (h *Host) afterBack(ctx context.Context, out *apply.Outcome) error {
	if out.Pending != nil {
		return nil
	}
	err := h.takeExceptions(ctx)
	if err != nil {
		text := "the exceptions by command in it are out of date, and updating them failed: " + wordsOf(err, h.Words)
		if list, err := h.Allows(ctx); err == nil {
			for _, e := range list {
				if e.Lifted {
					text += fmt.Sprintf("\n  %s is allowed again, although its exception was lifted", e.What)
				}
			}
		}
		h.warn(text)
		return nil
	}
	n, _, err := h.RunningNow()
	if err == nil && n != out.Generation {
		out.Notes = append(out.Notes, fmt.Sprintf("generation %d is generation %d with the present exceptions and additions to sets", n, out.Generation))
		out.Unchanged = false
	}
	out.Generation = n
	return err
}
