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
		Short: "Manages the firewalls of a fleet of hosts",
		Long: `Manages the firewalls of a fleet: one signed policy in a repository, of which each host
compiles its own part, applies it and proves it. "sluice agent enrol" brings a host into the fleet.

With --json every command prints one JSON value on standard output. When it fails
before that, the value has the keys "error" and "exit-status".

Exit status: 0 fine, 1 found something, 2 bad use or bad input, 130 interrupted.`,
		Example: `  sluice-controller init --fleet example.net --keys ~/fleet-keys
  sluice-controller check && sluice-controller sign && sluice-controller publish
  sluice-controller hosts`,
	})
	command.AddGroups(root,
		command.Group{Title: "The policy", Commands: []*cobra.Command{newInit(), newCheck(), newTest(), newDiff(), newAsk(), newDraft(), newSign(), newPublish(), newRollout(), newKey(), newExport(), newImport()}},
		command.Group{Title: "Hosts, and the machines on them", Commands: []*cobra.Command{newToken(), newHosts(), newInventory(), newGuest(), newRevoke()}},
		command.Group{Title: "What changes without a new bundle", Commands: []*cobra.Command{newBan(), newUnban(), newBans(), newAllow(), newDisallow(), newAllows(), newLists()}},
		command.Group{Title: "People and programs", Commands: []*cobra.Command{newLogin(), newLogout(), newAccess(), newRequests(), newApprove(), newRefuse()}},
		command.Group{Title: "The controller", Commands: []*cobra.Command{newRun(), newLocal(), newNotices(), newEvents(), newAudit(), newBackup(), newRestore(), newMigrate()}},
	)
	root.AddCommand(command.NewCompletion("sluice-controller"), command.NewVersion("sluice-controller"), command.NewFetchRanges())
	return root
}
