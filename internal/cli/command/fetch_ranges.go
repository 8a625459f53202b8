package command

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"sluice/internal/language/apart"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/system/kernel/confine"
)

// FetchRanges is the command line of the process that fetches lists and country data
// and reads them, for the program of that name.
func FetchRanges(program string) []string { return []string{program, "fetch-ranges"} }

// NewFetchRanges is the body of that process.
func NewFetchRanges() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch-ranges",
		Short: "Fetch a list or country data, and return plain ranges",
		Long: `Started internally to fetch a list or country data, which standard input names. It drops
all privileges that it does not need before it sends anything.

Exit status: 0 fetched, 2 failed.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lacks, err := confine.Process()
			if err != nil {
				return errors.Join(errors.New("confine the process that fetches"), err)
			}
			// Not the command's own output, which is made fit for a terminal.
			readers := apart.Readers{lists.Kind: lists.Read, geo.Kind: geo.ReadRows}
			return apart.Serve(cmd.Context(), cmd.InOrStdin(), os.Stdout, readers, lacks)
		},
	}
}
