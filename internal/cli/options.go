package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// options are the flags that every command has.
type options struct {
	json     bool
	stateDir string // policies, history, country data
	netns    string // "" is the namespace of the caller
}

func optionsOf(cmd *cobra.Command) options {
	return options{json: command.JSON(cmd), stateDir: command.StateDir(cmd), netns: command.Netns(cmd)}
}
