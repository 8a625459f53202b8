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
		Short:  "Wait for confirmation, or roll back",
		Long:   "Started by apply --confirm; it ends when the policy is confirmed, or rolls it back.\n\nExit status: 0 done, 2 it failed.",
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
