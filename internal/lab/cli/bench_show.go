package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
)

func newBenchShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show REPORT.json",
		Short: "Print a saved report, or draw it as a page",
		Long: `Prints a report that --save of bench, load or story wrote, as the command printed it that measured,
or as JSON with --json; --html draws it as one page with charts that needs no network. You can draw
on another machine than the one that measured, and without root.

Exit status: 0, even if a goal of the report is not reached, 2 bad use or bad input.`,
		Example: `  sluice-lab bench show report.json
  sluice-lab bench show report.json --html report.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := figures.Load(args[0])
			if err != nil {
				return err
			}
			if err := writePage(cmd, r); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if command.JSON(cmd) {
				return r.Write(w)
			}
			printFigures(w, r)
			return nil
		},
	}
	addPage(cmd)
	return cmd
}
