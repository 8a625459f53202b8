package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
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
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			result, err := h.UndoCountries(ctx)
			if err != nil {
				return err
			}
			return answer(cmd, result, false, func(w io.Writer) { printGeoUpdate(w, result) })
		}),
	}
}
