package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

func newEvents() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Tell what changes in the fleet, as it does",
		Long: `Tells what changes from now on until it is stopped, a line an event: states of hosts (host,
host-gone), roll-outs (rollout), that there are other bans and allows (bans), and notices that
begin and end (notice). With reset something may have been missed: it comes first, and where
the connection was slow. With --json each line is a JSON value; --after goes on behind an event that was told of.

Exit status: 0 it was stopped, or the controller ends; 2 bad use, or no controller answers.`,
		Example: "  sluice-controller events\n  sluice-controller events --json | jq 'select(.event == \"host\").data.state'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := command.Interruptible(cmd)
			defer stop()
			after, _ := cmd.Flags().GetString("after")
			w := command.Exact(cmd.OutOrStdout())
			err := controllerOf(cmd).Events(ctx, after, func(e api.Event) error {
				if command.JSON(cmd) {
					return json.NewEncoder(w).Encode(e)
				}
				_, err := fmt.Fprintf(w, "%s  %s  %s\n", command.Plain(e.ID), command.Plain(e.Kind), command.Plain(string(e.Data)))
				return err
			})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return hinted(err)
		},
	}
	addController(cmd)
	cmd.Flags().String("after", "", "go on behind the event `ID`, where it is kept")
	return cmd
}
