package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newConfirm() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Keep the policy that waits for a confirmation",
		Long: `Keeps the policy that was applied with --confirm: it does not go back, and is
from now on what boots. Where the disk does not take that, it is kept until the
next boot, and the message names what that loads; confirm again when there is room.
` + filesHelp + `

Exit status: 0 confirmed; 1 nothing waits for a confirmation, or it is kept until
the next boot alone; 2 it failed.`,
		Example: "  sluice apply policy.yaml --confirm 60s && ssh host.example.net sluice confirm",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := hostOf(cmd)
			if err != nil {
				return err
			}
			ctx, stop := command.Interruptible(cmd)
			defer stop()
			n, err := h.Confirm(ctx)
			if apply.NothingPending(err) {
				return asFound(err)
			}
			if err != nil {
				return undurable(err)
			}
			if optionsOf(cmd).json {
				return command.PrintJSON(cmd.OutOrStdout(), &apply.Outcome{Generation: n})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "generation %d is confirmed and will be loaded at boot\n", n)
			return nil
		},
	}
	addWait(cmd)
	return cmd
}
