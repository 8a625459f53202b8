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
	for _, g := range []struct {
		title string
		all   []*cobra.Command // in the order of the help
	}{
		{"The policy:", []*cobra.Command{newInit(), newCheck(), newTest(), newDiff(), newAsk(), newDraft(), newSign(), newPublish(), newRollout(), newKey(), newExport(), newImport()}},
		{"Hosts, and the machines on them:", []*cobra.Command{newToken(), newHosts(), newInventory(), newGuest(), newRevoke()}},
		{"What changes without a new bundle:", []*cobra.Command{newBan(), newUnban(), newBans(), newAllow(), newDisallow(), newAllows(), newLists()}},
		{"People and programs:", []*cobra.Command{newLogin(), newLogout(), newAccess(), newRequests(), newApprove(), newRefuse()}},
		{"The controller:", []*cobra.Command{newRun(), newLocal(), newNotices(), newEvents(), newAudit(), newBackup(), newRestore(), newMigrate()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range g.all {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(command.NewCompletion("sluice-controller"), command.NewVersion("sluice-controller"), command.NewFetchRanges())
	return root
}
