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
		Short: "Print what changes in the fleet, as it happens",
		Long: `Prints what changes from now on, one line for each event, until it is stopped: states of hosts
(host, host-gone), roll-outs (rollout), changes of bans and allows (bans), and notices that
begin and end (notice). "reset" means that events may have been missed: it comes first, and
after a connection was too slow. With --json each line is a JSON value; --after resumes after
an event that was printed before.

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
	cmd.Flags().String("after", "", "resume after the event `ID`, if it is still kept")
	return cmd
}
