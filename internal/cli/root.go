package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// Main runs one command line and returns the exit status.
func Main(args []string) int {
	collectLate()
	return command.Main(Root(), args)
}

// Root makes the whole command tree.
func Root() *cobra.Command {
	root := command.Root(&cobra.Command{
		Use:   "sluice",
		Short: "A firewall that keeps the packet path short and proves it",
		Long: `Sluice compiles one policy file to the cheapest firewall that this kernel can run, loads it
without a gap, and rolls it back if it locks you out.

With --json every command prints one JSON value on standard output. If it fails before that, the
value has the keys "error" and "exit-status".

Exit status: 0 fine, 1 found something, 2 bad use or bad input.`,
		Example: `  sluice init > /etc/sluice/policy.yaml
  sluice plan /etc/sluice/policy.yaml
  sluice apply /etc/sluice/policy.yaml --confirm 60s`,
	})
	command.AddGroups(root,
		command.Group{Title: "Write a policy", Commands: []*cobra.Command{newInit(), newEdit(), newCheck(), newLint(), newFmt(), newSchema(), newCompile(), newFacts()}},
		command.Group{Title: "Ask what a policy does", Commands: []*cobra.Command{newExplain(), newQuery(), newDiff(), newTest()}},
		command.Group{Title: "Load, confirm and undo", Commands: []*cobra.Command{newPlan(), newShadow(), newApply(), newConfirm(), newRollback(), newHistory(), newVerify(), newRestore(), newRemove()}},
		command.Group{Title: "Watch what runs", Commands: []*cobra.Command{newStatus(), newLog(), newDrops(), newTop(), newMetrics()}},
		command.Group{Title: "Ban and allow", Commands: []*cobra.Command{newBan(), newUnban(), newBans(), newAllow(), newDisallow(), newAllows(), newSet()}},
		command.Group{Title: "Keep lists and addresses current", Commands: []*cobra.Command{newGeo(), newRefresh(), newSync()}},
		command.Group{Title: "The host", Commands: []*cobra.Command{newAgent(), newDoctor(), newConntrack()}},
	)
	root.AddCommand(
		newMoved("bench"),
		newMoved("load"),
		newMoved("story"),
		command.NewCompletion("sluice"),
		command.NewVersion("sluice"),
		newWatch(),
		newWork(),
		command.NewFetchRanges(),
	)
	insideNetns(root)
	command.HostFlags(root)
	return root
}
