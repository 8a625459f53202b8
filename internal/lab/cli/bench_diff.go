package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
)

func newBenchDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff OLD.json NEW.json",
		Short: "Find what became slower between two runs, statistically",
		Long: `Compares two reports that --save of bench, load or story wrote, figure by figure. A figure is worse
or better if the rounds of the two runs differ by more than chance (Mann-Whitney's U test at 5 %, as
in benchstat, corrected for all figures of the report by Holm's method) and the medians differ by at
least --least. Fewer than four rounds decide nothing. Counted instructions do not vary by chance:
there --least alone decides.

Runs of different machines, or of a busy one, are compared with a warning. A machine that was slower
as a whole makes nanoseconds worse and leaves ratios (×) as they are: trust those.

--html draws old and new next to each other, the worse first, as one page.

Exit status: 0 nothing is worse, 1 something is, 2 bad use or bad input.`,
		Example: `  sluice-lab bench packet --save before.json
  sluice-lab bench packet --save after.json
  sluice-lab bench diff before.json after.json
  sluice-lab bench diff before.json after.json --html diff.html`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			least, _ := cmd.Flags().GetFloat64("least")
			if least < 0 || least >= 1 {
				return errors.New("--least is a part of the old figure, 0 up to 1, such as 0.02")
			}
			old, err := figures.Load(args[0])
			if err != nil {
				return err
			}
			now, err := figures.Load(args[1])
			if err != nil {
				return err
			}
			c := figures.Compare(old, now, least)
			all, _ := cmd.Flags().GetBool("all")
			if err := writePage(cmd, c.Report(old, now, all)); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if command.JSON(cmd) {
				if err := command.PrintJSON(w, c); err != nil {
					return err
				}
			} else {
				c.Print(w, all, func(v figures.Verdict, text string) string {
					switch v {
					case figures.Worse:
						return command.Paint(w, "31", text)
					case figures.Better:
						return command.Paint(w, "32", text)
					}
					return text
				})
			}
			if c.Count(figures.Worse) > 0 {
				return command.ErrFound
			}
			return nil
		},
	}
	addPage(cmd)
	cmd.Flags().Bool("all", false, "also show figures that did not change")
	cmd.Flags().Float64("least", 0.02, "the smallest `PART` of the old figure that counts as a difference")
	return cmd
}
