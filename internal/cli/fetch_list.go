package cli

import (
	"errors"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"sluice/internal/kernel/confine"
	"sluice/internal/lists"
)

// fetchList is the command line of the child that fetches a list.
var fetchList = []string{"sluice", "fetch-list"}

// newFetchList is the body of that child; what has lists starts it.
func newFetchList() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch-list",
		Short: "Ask a list's server, and hand back plain ranges",
		Long: `Started by what fetches lists, with what to fetch on standard input. It gives up
all that it does not need before it asks.

Exit status: 0 answered, 2 it failed.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lacks, err := confine.Process()
			if err != nil {
				return errors.Join(errors.New("confine the process that fetches lists"), err)
			}
			// Not the command's own output, which is made fit for a terminal.
			return lists.Serve(cmd.Context(), cmd.InOrStdin(), os.Stdout, lacks)
		},
	}
}

// once passes a text on the first time that it comes.
func once(tell func(string)) func(string) {
	var told sync.Map
	return func(text string) {
		if _, again := told.LoadOrStore(text, true); !again {
			tell(text)
		}
	}
}
