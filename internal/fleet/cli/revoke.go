package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

func newRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke HOST",
		Short: "End a host's access to the fleet, at once",
		Long: `Ends a host's access to the fleet: its connection is cut, and its keys are no longer accepted,
not even for a new certificate. What it runs stays in force there. The name can be enrolled
again with a token and another key.

Exit status: 0 revoked, 2 bad use, there is no such host, or no controller answers.`,
		Example: "  sluice-controller revoke web-1 --message 'its disk was sold'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			why, _ := cmd.Flags().GetString("message")
			if err := controllerOf(cmd).Revoke(cmd.Context(), args[0], why); err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), map[string]string{"revoked": args[0]})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is revoked\n", args[0])
			return nil
		},
	}
	addController(cmd)
	cmd.Flags().StringP("message", "m", "", "`TEXT` for the audit: why")
	return cmd
}
