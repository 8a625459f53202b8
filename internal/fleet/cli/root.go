package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// Main runs one command line and returns the exit status.
func Main(args []string) int { return command.Main(Root(), args) }

// Root makes the whole command tree.
func Root() *cobra.Command {
	root := command.Root(&cobra.Command{
		Use:   "sluice-controller",
		Short: "Keeps the firewalls of a fleet of hosts",
		Long: `Keeps one signed policy for many hosts, each of which compiles its own part of it,
applies it and proves it.

With --json every command prints one JSON value on standard output. When it fails
before that, the value has the keys "error" and "exit-status".

Exit status: 0 fine, 1 found something, 2 bad use or bad input, 130 interrupted.`,
		Example: `  sluice-controller check`,
	})
	root.AddCommand(
		// One line a command, in the order of the help.
		newInit(),
		newCheck(),
		newTest(),
		newDiff(),
		newAsk(),
		newSign(),
		newRun(),
		newToken(),
		newPublish(),
		newHosts(),
		newRollout(),
		newRevoke(),
		newKey(),
		newAudit(),
		command.NewCompletion("sluice-controller"),
		command.NewVersion("sluice-controller"),
	)
	return root
}
