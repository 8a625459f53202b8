package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/limits"
)

func newBenchLimits() *cobra.Command {
	names, about := limits.Sections()
	var list strings.Builder
	for i, name := range names {
		fmt.Fprintf(&list, "  %-12s %s\n", name, about[i])
	}
	cmd := &cobra.Command{
		Use:   "limits [SECTION]...",
		Short: "Measure the figures that Sluice is held to, with real country data",
		Long: `Measures, beside what others do with the same addresses and rules, every figure
that has a limit: what a packet costs for large sets, for many rules and bans, on a
known connection; what whole commands take. Without SECTION it measures all, some
minutes on a machine at rest.

` + list.String() + `
A limit counts as kept when the bound of the confidence interval is within it, and
one side against itself (A/A) stays under half of the way from the figure to the
limit. "not shown" is within the limit on a machine too noisy to say so: a longer
run or a quieter one may show it. --short has a quarter of the rounds.

The country data are those of the state directory, else the built-in ones; --data
names a folder with dbip-country-ipv4.csv and dbip-country-ipv6.csv instead. The
limits are meant for DB-IP Lite, which scripts/fetch-geo-data of the source fetches.

` + reportHelp + `

Environment: TMPDIR, the folder for policies and states of the run.
Files: geo/countries below the state directory, read alone.
Exit status: 0 every limit is kept, 1 one is not or cannot be shown, 2 bad use, or a
machine that cannot measure, 130 interrupted: whole sections are printed.`,
		Example: `  sluice-lab bench limits
  sluice-lab bench limits established ipv4 --short
  sluice-lab bench limits apply --save apply.json`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var left []string
			for i, name := range names {
				if !slices.Contains(args, name) {
					left = append(left, cobra.CompletionWithDesc(name, about[i]))
				}
			}
			return left, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		},
		Args: func(_ *cobra.Command, args []string) error {
			for _, a := range args {
				if !slices.Contains(names, a) {
					return fmt.Errorf("there is no section %q\nhint: the sections are %s", a, strings.Join(names, ", "))
				}
			}
			return nil
		},
		RunE: runBenchLimits,
	}
	flags := cmd.Flags()
	flags.Bool("short", false, "fewer rounds: a rough answer in about two minutes")
	flags.Uint64("seed", 1, "`SEED` of the sources that are drawn")
	flags.String("data", "", "country data as CSV in `DIR`")
	command.Must(cmd.MarkFlagDirname("data"))
	addReport(cmd)
	return cmd
}

func runBenchLimits(cmd *cobra.Command, args []string) error {
	ctx, stop := measuring(cmd)
	defer stop()
	flags := cmd.Flags()
	o := limits.Options{StateDir: command.StateDir(cmd), Sections: args}
	o.Short, _ = flags.GetBool("short")
	o.Seed, _ = flags.GetUint64("seed")
	o.Data, _ = flags.GetString("data")
	var err error
	if o.Binary, err = theSluice(); err != nil {
		return err
	}
	r := startReport(cmd, args, "What Sluice is held to")
	progress := newProgress(cmd)
	o.Progress = progress.Say
	failed := limits.Run(ctx, o, r)
	progress.Done()
	if failed != nil {
		if len(r.Sections) > 0 && ctx.Err() != nil {
			_ = finishReport(cmd, r) // that it was interrupted is what is said
		}
		return failed
	}
	return finishReport(cmd, r)
}
