package cli

import (
	"context"

	"github.com/spf13/cobra"

	"sluice/internal/base/addrset"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// door is what commands ask of a host. What it answers survives JSON, so that another
// process may do the work: commands print, and end with, what is in there and no more.
type door interface {
	Status(ctx context.Context, contents bool) (*apply.Status, error)
	Verify(ctx context.Context, against *engine.Subject, own bool) (*engine.Verified, error)
	History() (*apply.History, error)
	Text(generation int) (*apply.Text, error)
	Bans(ctx context.Context) ([]apply.BanEntry, error)
	Ban(ctx context.Context, in apply.Banning) (*apply.Banned, error)
	Unban(ctx context.Context, what []addrset.Range) (*apply.Banned, error)
	Plan(ctx context.Context, r engine.Request) (*engine.Plan, error)
	Apply(ctx context.Context, r engine.Request, o apply.Options) (*apply.Outcome, error)
	Confirm(ctx context.Context) (int, error)
	Rollback(ctx context.Context, generation int, o apply.Options) (*apply.Outcome, error)
	Remove(ctx context.Context) (*apply.Outcome, error)
	Restore(ctx context.Context, r apply.Restoring) (*apply.Outcome, error)
	Sync(ctx context.Context) (*apply.Synced, error)
	Refresh(ctx context.Context, in engine.Refreshing) (*engine.Refreshed, error)
}

// through is who does the work for the commands of a host; tests put another there. Here
// is the flags that lead a command to the host.
var through = func(h *engine.Host, here string) door { return h }

// doorOf is what a command asks.
func doorOf(cmd *cobra.Command) (door, error) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, err
	}
	return through(h, command.HereArguments(cmd)), nil
}
