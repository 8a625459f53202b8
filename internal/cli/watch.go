package cli

import (
	"context"

	"github.com/spf13/cobra"

	"sluice/internal/engine/apply"
)

// newWatch is the body of the confirm watcher; apply starts it.
func newWatch() *cobra.Command {
	return &cobra.Command{
		Use:    "watch TOKEN",
		Short:  "Wait for a confirmation, and go back without it",
		Long:   "Started by apply --confirm; it ends with the confirmation, or brings back what was before.\n\nExit status: 0 done, 2 it failed.",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := hostOf(cmd)
			if err != nil {
				return err
			}
			h.Progress = nil
			h.By = apply.Author{} // what it does, nobody does
			apply.StandAlone()
			return h.Watch(context.Background(), args[0])
		},
	}
}
