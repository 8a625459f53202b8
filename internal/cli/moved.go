package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newMoved says where a command is that this program once had.
func newMoved(name string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Moved to sluice-lab",
		Long:               fmt.Sprintf("This is a command of sluice-lab: sluice-lab %s.\n\nExit status: 2.", name),
		Hidden:             true,
		DisableFlagParsing: true, // flags are those of the command that is no more here
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return fmt.Errorf("%s is a command of sluice-lab: %s", name, strings.Join(append([]string{"sluice-lab", name}, args...), " "))
		},
	}
}
