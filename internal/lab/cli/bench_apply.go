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
		Short: "Measure what changing the rules takes, and costs packets meanwhile",
		Long: `Loads a policy on an empty host, again without a change, with one more banned address, and with
1 % of the ranges of its countries changed, and measures each: elapsed and processor time, peak
memory of the processes and of the kernel, bytes over netlink. The same is done by other means, in
the same rounds: nft -f with a file that refills everything, nft -f in careful steps, ipset restore
into a second set that is swapped in, and a reload of firewalld.

In other rounds flows arrive while the change is made. Flows that both old and new rules allow must
never be lost, and flows that neither allows must never pass: both are counted, and if sluice treats
any wrongly, the exit status is 1.

Without FILE it uses a policy of its own, with http and https for Europe only, ssh, and 650 bans.
FILE is measured as it is, plus a list of ten banned addresses, with the country data and copies of
lists of the state directory; nothing is written there. What a peer cannot express is left out.

It measures in network namespaces that are deleted afterwards. firewalld runs on its own bus with
its own files. It needs root, and Linux 6.3 to count bytes.

` + reportHelp + `

Environment: TMPDIR, the directory for policies and states of the run.
Files: /proc/net/softnet_stat, to recognize packets that no rule dropped.
Exit status: 0 measured, 1 sluice treated a packet wrongly, 2 bad use, bad input, or a machine
that cannot measure, 130 interrupted; the results so far are printed.`,
		Example: `  sluice-lab bench apply
  sluice-lab bench apply /etc/sluice/policy.yaml --against nft,ipset
  sluice-lab bench apply --rounds 15 --save apply.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE:              runBenchApply,
	}
	flags := cmd.Flags()
	flags.StringSlice("against", []string{"nft", "ipset", "firewalld"}, "compare with `WAYS`: nft, ipset, firewalld, or none")
	flags.Int("rounds", 9, "time each change `N` times, and watch packets and memory in a third as many rounds")
	flags.Uint64("seed", 1, "`SEED` of the random flows, and of the ranges that change")
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
		return errors.New("--rounds must be at least 1")
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
