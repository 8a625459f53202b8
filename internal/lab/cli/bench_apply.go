package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/applybench"
)

func newBenchApply() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply [FILE]",
		Short: "Measure what it takes to change the rules, and what packets pay meanwhile",
		Long: `Loads a policy from nothing, again without a change, with one banned address more,
and with 1 % of the ranges of its countries changed; and says of each what it takes:
time by the clock and of processors, the most memory of the processes and of the
kernel, bytes over netlink. The same is done with what others use, in the same
rounds: nft -f with a file that refills everything, nft -f in careful steps, ipset
restore into a set beside that is swapped, and a reload of firewalld.

In other rounds flows arrive while the change is made. Those that old and new rules
both allow must never be lost, those that neither allows must never pass: both are
counted, and any that sluice treats wrongly makes the exit status 1.

Without FILE the policy is one of its own, with http and https for Europe alone,
ssh, and 650 bans. FILE is measured as it stands, with a list of ten banned
addresses more, from the country data and copies of lists of the state directory;
nothing is written there. What a peer cannot say, it is left out with.

Measured in network namespaces that are gone afterwards. firewalld runs on a bus of
its own, with files of its own. Root is needed, and Linux 6.3 to count bytes.

` + reportHelp + `

Environment: TMPDIR, the folder for policies and states of the run.
Files: /proc/net/softnet_stat, to tell what no rule dropped.
Exit status: 0 measured, 1 sluice has treated a packet wrongly, 2 bad use, bad input,
or a machine that cannot measure, 130 interrupted: what there is by then is printed.`,
		Example: `  sluice-lab bench apply
  sluice-lab bench apply /etc/sluice/policy.yaml --against nft,ipset
  sluice-lab bench apply --rounds 15 --save apply.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE:              runBenchApply,
	}
	flags := cmd.Flags()
	flags.StringSlice("against", []string{"nft", "ipset", "firewalld"}, "compare with `WAYS`: nft, ipset, firewalld, or none")
	flags.Int("rounds", 9, "time each change `N` times; packets and memory are watched in a third as many")
	flags.Uint64("seed", 1, "`SEED` of what is drawn: flows, and the ranges that change")
	command.Must(cmd.RegisterFlagCompletionFunc("against", command.Words("nft", "ipset", "firewalld", "none")))
	addReport(cmd)
	return cmd
}

func runBenchApply(cmd *cobra.Command, args []string) error {
	ctx, stop := measuring(cmd)
	defer stop()
	flags := cmd.Flags()
	o := applybench.Options{StateDir: command.StateDir(cmd)}
	if len(args) > 0 {
		o.Policy = args[0]
	}
	var err error
	if o.Binary, err = theSluice(); err != nil {
		return err
	}
	o.Seed, _ = flags.GetUint64("seed")
	if o.Rounds, _ = flags.GetInt("rounds"); o.Rounds < 1 {
		return errors.New("--rounds is a number of rounds, 1 at the least")
	}
	against, _ := flags.GetStringSlice("against")
	if o.Rivals, err = rivals(against); err != nil {
		return err
	}
	r := startReport(cmd, args, "What a change of the rules takes")
	progress := newProgress(cmd)
	o.Progress = func(what string, done, total int) {
		if total > 0 {
			progress.Say("round %d of %d, %s", done+1, total, what)
		} else {
			progress.Say("%s", what)
		}
	}
	failed := applybench.Run(ctx, o, r)
	progress.Done()
	if failed != nil {
		if len(r.Sections) > 0 { // interrupted: that is what is said, not whether goals are reached
			_ = finishReport(cmd, r)
		}
		return failed
	}
	return finishReport(cmd, r)
}

// rivals are the names of what --against names.
func rivals(words []string) ([]string, error) {
	out := []string{applybench.Sluice}
	for _, w := range words {
		names, known := applybench.Words[w]
		switch {
		case known:
			out = append(out, names...)
		case w != "none" || len(words) > 1:
			var all []string
			for name := range applybench.Words {
				all = append(all, name)
			}
			slices.Sort(all)
			return nil, fmt.Errorf("unknown way %q to change rules\nhint: --against knows %s, or none", w, strings.Join(all, ", "))
		}
	}
	return out, nil
}
