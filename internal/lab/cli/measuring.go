package cli

import (
	"context"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/testnet"
)

// measuring is interruptible for a command that measures in namespaces of its own:
// these are removed by the measurement that ends, which may have something to say.
func measuring(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	testnet.LeaveSignals()
	ctx, stop := command.Interruptible(cmd)
	context.AfterFunc(ctx, stop) // a second one ends at once, should what is removed hang
	return ctx, stop
}
