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
		Long: `Goes back to the country data before the last update, or to the built-in data if it was the
first. A second undo reverses the first.

The running policy keeps the old data until "sluice refresh --countries".

Files: geo/countries, geo/countries.previous in the state directory.
Exit status: 0 fine, 2 nothing to go back to, or bad use.`,
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
