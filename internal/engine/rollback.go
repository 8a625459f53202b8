package engine

import (
	"context"

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
	return h.Host.Rollback(ctx, n, o, apply.SSHClients(facts))
}
