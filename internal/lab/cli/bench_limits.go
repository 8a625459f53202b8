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
		Short: "Measure the figures that have limits, with real country data",
		Long: `Measures every figure that has a limit, compared with what others do with the same addresses and
rules: the cost of a packet with large sets, with many rules and bans, and on a known connection, and
the time of whole commands. Without SECTION it measures all, in some minutes on an idle machine.

` + list.String() + `
A limit is kept if the bound of the confidence interval is within it, and one side against itself
(A/A) differs by less than half of the margin to the limit. "not shown" is within the limit, but on a
machine too noisy to prove it: a longer run or an idle machine may. --short runs a quarter of the
rounds.

The country data are those of the state directory, or else the built-in ones; --data names a
directory with dbip-country-ipv4.csv and dbip-country-ipv6.csv instead. The limits are for DB-IP
Lite, which scripts/fetch-geo-data in the source downloads.

` + reportHelp + `

Environment: TMPDIR, the directory for policies and states of the run.
Files: geo/countries in the state directory, read only.
Exit status: 0 every limit is kept, 1 one is not or cannot be shown, 2 bad use, or a machine that
cannot measure, 130 interrupted; complete sections are printed.`,
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
					return fmt.Errorf("no such section: %q\nhint: the sections are %s", a, strings.Join(names, ", "))
				}
			}
			return nil
		},
		RunE: runBenchLimits,
	}
	flags := cmd.Flags()
	flags.Bool("short", false, "fewer rounds: a rough answer in about two minutes")
	flags.Uint64("seed", 1, "`SEED` of the random sources")
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
