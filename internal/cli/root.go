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
		Long: `Sluice compiles one policy file to the cheapest firewall that this kernel can
run, loads it without a gap, and takes it back by itself if it locked you out.

With --json every command prints one JSON value on standard output. When it fails
before that, the value has the keys "error" and "exit-status".

Exit status: 0 fine, 1 found something, 2 bad use or bad input.`,
		Example: `  sluice init > /etc/sluice/policy.yaml
  sluice plan /etc/sluice/policy.yaml
  sluice apply /etc/sluice/policy.yaml --confirm 60s`,
	})
	root.AddCommand(
		// One line a command, in the order of the help.
		newInit(),
		newCheck(),
		newLint(),
		newLog(),
		newDrops(),
		newFmt(),
		newSchema(),
		newCompile(),
		newExplain(),
		newQuery(),
		newDiff(),
		newTest(),
		newFacts(),
		newGeo(),
		newPlan(),
		newShadow(),
		newApply(),
		newEdit(),
		newConfirm(),
		newRollback(),
		newBan(),
		newUnban(),
		newBans(),
		newAllow(),
		newDisallow(),
		newAllows(),
		newSet(),
		newRefresh(),
		newSync(),
		newAgent(),
		newStatus(),
		newMetrics(),
		newTop(),
		newDoctor(),
		newConntrack(),
		newVerify(),
		newHistory(),
		newRemove(),
		newRestore(),
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
