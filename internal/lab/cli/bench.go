package cli

import "github.com/spf13/cobra"

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what packets and changes cost on this machine",
		Long: `Measures on this machine, in network namespaces that are deleted afterwards, also after Ctrl-C:
nothing is sent beyond them, and the host's own rules are not touched. It needs root.

Every command prints a table, or JSON with --json, saves the report with --save, and draws it as
a page with charts with --html. Ratios are of two sides measured in turn, in one run; next to
them is what the method makes of one side against itself.

Exit status: 0 measured, 1 a figure is not what it should be, 2 bad use, bad input, or a machine
that cannot measure, 130 interrupted.`,
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
