package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/language/geo"
)

func newGeoUndo() *cobra.Command {
	return &cobra.Command{
		Use:   "undo",
		Short: "Go back to the country data that the last update replaced",
		Long: `Puts the previous country data in use again: those before the last update, or the
built-in ones when it was the first. The data that were in use are the previous ones
then, so that a second undo takes the first one back.

Running firewalls are not changed; "sluice refresh --countries" does that.

Files: geo/countries, geo/countries.previous below the state directory.
Exit status: 0 fine, 2 there are none to go back to, or bad use.`,
		Example: "  sluice geo undo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := geo.Undo(optionsOf(cmd).stateDir)
			if err != nil {
				return err
			}
			if optionsOf(cmd).json {
				return command.PrintJSON(cmd.OutOrStdout(), result)
			}
			return printGeoUpdate(cmd.OutOrStdout(), result)
		},
	}
}
