package cli

import (
	_ "time/tzdata" // fleet.yaml says in time zones when no roll-out begins; a small machine has none

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// Main runs one command line and returns the exit status.
func Main(args []string) int {
	root := Root()
	nameHost(root, args)
	return command.Main(root, args)
}

// help is what a command does that has others below it.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

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
		newInventory(),
		newRollout(),
		newLists(),
		newGuest(),
		newBan(),
		newUnban(),
		newBans(),
		newAllow(),
		newDisallow(),
		newAllows(),
		newRevoke(),
		newKey(),
		newAudit(),
		newAccess(),
		newRequests(),
		newApprove(),
		newRefuse(),
		newExport(),
		newImport(),
		newBackup(),
		newRestore(),
		newMigrate(),
		newNotices(),
		newEvents(),
		newLogin(),
		newLogout(),
		command.NewCompletion("sluice-controller"),
		command.NewVersion("sluice-controller"),
		command.NewFetchRanges(),
	)
	return root
}
