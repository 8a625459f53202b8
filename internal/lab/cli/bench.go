package cli

import "github.com/spf13/cobra"

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what packets and changes cost on this machine",
		Long: `Measures on the machine that it runs on, in network namespaces that are made for
it and gone afterwards, also after Ctrl-C: nothing is sent beyond them, and the
host's own rules are not touched. Root is needed.

Every command prints a table, or JSON with --json, saves the same with --save, and
draws it as a page with charts with --html.
Ratios are of two sides that were measured in turn, in one run; beside them stands
what the method makes of one side against itself.

Exit status: 0 measured, 1 a figure is not what it should be, 2 bad use, bad
input, or a machine that cannot measure, 130 interrupted.`,
		Example: `  sluice-lab bench packet --html page.html
  sluice-lab bench diff before.json after.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		// One line a command, in the order of the help.
		newBenchPacket(),
		newBenchApply(),
		newBenchLimits(),
		newBenchFleet(),
		newBenchCalibrate(),
		newBenchShow(),
		newBenchDiff(),
	)
	return cmd
}
