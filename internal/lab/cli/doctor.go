package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/cli/command"
	"sluice/internal/lab/diagnose"
	"sluice/internal/lab/stats"
)

const (
	corpusWindow = time.Second
	// longestDiagnosis is what one may take, its window too.
	longestDiagnosis = 2 * time.Second
	mostSlow         = 5
)

func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Test sluice doctor on rulesets of others, and its estimates on the kernel",
		Long: `--measure measures what the rules of each base chain add to the cost of a packet, and compares it
with the estimate of sluice doctor: it loads the rules of this network namespace (or of --netns) in
new namespaces, one with the rules of each base chain, and sends packets of a known connection and
new ones to a closed port there. It only reads the rules of the host, and skips Sluice's own tables:
sluice-lab bench packet measures those. A chain that drops a packet has a negative figure if the rest
of the packet's path costs more.

--corpus loads each ruleset in a directory and its subdirectories (nftables files, output of
iptables-save, ip6tables-save and ipset save) in a network namespace of its own, has the real sluice
doctor diagnose it, and reports how often each check finds something, what did not load, and how long
it took, of which 1 s is the window. Rulesets are recognized by their text.

Findings about the machine itself (its processors, its log) are counted too: keep it idle.

Exit status: 0 measured, or each loaded ruleset was diagnosed in 2 s, 1 one was not, 2 bad use,
130 interrupted.`,
		Example: `  sluice-lab doctor --corpus ./rulesets
  sluice-lab doctor --corpus ./rulesets --pick 20 --seed 7
  sluice-lab doctor --measure`,
		Args: cobra.NoArgs,
		RunE: runDoctor,
	}
	flags := cmd.Flags()
	flags.String("corpus", "", "diagnose the rulesets in `DIR`")
	flags.Int("pick", 0, "print `N` random findings, to check manually")
	flags.Uint64("seed", 1, "random `SEED`")
	flags.Bool("measure", false, "measure what the loaded rules cost a packet")
	flags.Int("rounds", 15, "measure `N` times, in turn")
	command.Must(cmd.MarkFlagDirname("corpus"))
	cmd.MarkFlagsOneRequired("corpus", "measure")
	for _, other := range []string{"corpus", "pick", "seed"} {
		cmd.MarkFlagsMutuallyExclusive("measure", other)
	}
	cmd.MarkFlagsMutuallyExclusive("corpus", "rounds")
	return cmd
}

type corpusJSON struct {
	*diagnose.Result
	Picked []diagnose.Picked `json:"picked,omitempty"`
}

func runDoctor(cmd *cobra.Command, _ []string) (err error) {
	flags := cmd.Flags()
	if on, _ := flags.GetBool("measure"); on {
		return runMeasure(cmd)
	}
	pick, _ := flags.GetInt("pick")
	seed, _ := flags.GetUint64("seed")
	if pick < 0 {
		return fmt.Errorf("--pick %d: give 0 or more", pick)
	}
	o := diagnose.Options{Window: corpusWindow}
	o.Dir, _ = flags.GetString("corpus")
	if o.Binary, err = theSluice(); err != nil {
		return err
	}
	w := command.Bare(cmd.ErrOrStderr())
	if command.IsTerminal(w) {
		o.Progress = func(done, of int) { fmt.Fprintf(w, "\r\x1b[K%d of %d\r", done, of) }
	}
	ctx, stop := measuring(cmd)
	defer stop()
	result, err := diagnose.Corpus(ctx, o)
	if err != nil {
		return err
	}
	if len(result.Files) == 0 {
		return fmt.Errorf("%s has no rulesets", o.Dir)
	}
	picked := result.Pick(pick, seed)
	if command.JSON(cmd) {
		err = command.PrintJSON(cmd.OutOrStdout(), corpusJSON{result, picked})
	} else {
		printCorpus(cmd.OutOrStdout(), result, picked)
	}
	if err == nil && slices.ContainsFunc(result.Files, undiagnosed) {
		return command.ErrFound
	}
	return err
}

func undiagnosed(f diagnose.File) bool {
	return f.Failed != "" || f.Seconds > longestDiagnosis.Seconds()
}

func printCorpus(w io.Writer, r *diagnose.Result, picked []diagnose.Picked) {
	loaded := slices.DeleteFunc(slices.Clone(r.Files), func(f diagnose.File) bool { return f.NotLoaded != "" })
	fmt.Fprintf(w, "%d of %s loaded\n\n", len(loaded), english.Plural(len(r.Files), "ruleset"))
	for _, f := range r.Files {
		switch {
		case f.NotLoaded != "":
			fmt.Fprintf(w, "not loaded: %s: %s: %s\n", f.Name, f.Tool, f.NotLoaded)
		case f.Failed != "":
			fmt.Fprintf(w, "error: %s: the doctor failed: %s\n", f.Name, f.Failed)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\ncheck\trulesets\tfindings")
	for _, c := range r.Fires {
		fmt.Fprintf(tw, "%s\t%d\t%d\n", c.Check, c.Files, c.Findings)
	}
	_ = tw.Flush()
	if len(loaded) > 0 {
		sorting.By(loaded, func(a, b diagnose.File) int {
			return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name))
		})
		fmt.Fprintf(w, "\na diagnosis takes %.2f s in the median; the longest:\n", loaded[len(loaded)/2].Seconds)
		for _, f := range loaded[:min(mostSlow, len(loaded))] {
			fmt.Fprintf(w, "%.2f s  %s\n", f.Seconds, f.Name)
		}
	}
	for i, p := range picked {
		fmt.Fprintf(w, "\n%d. %s: %s: %s: %s\n", i+1, p.File, p.Finding.Severity, p.Finding.Check, p.Finding.Text)
		for _, e := range p.Finding.Evidence {
			fmt.Fprintf(w, "   %s [%s]\n", e.Text, e.From)
		}
	}
}

func runMeasure(cmd *cobra.Command) error {
	rounds, _ := cmd.Flags().GetInt("rounds")
	if rounds < 3 {
		return fmt.Errorf("--rounds %d: give 3 or more", rounds)
	}
	o := diagnose.MeasureOptions{Rounds: rounds}
	if w := command.Bare(cmd.ErrOrStderr()); command.IsTerminal(w) {
		o.Say = func(format string, args ...any) { fmt.Fprintf(w, "\r\x1b[K"+format+"\r", args...) }
	}
	ctx, stop := measuring(cmd)
	defer stop()
	chains, err := diagnose.Measure(ctx, o)
	if err != nil {
		return err
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), struct {
			Chains []diagnose.Measured `json:"chains"`
		}{chains})
	}
	printMeasured(cmd.OutOrStdout(), chains)
	return nil
}

func printMeasured(w io.Writer, chains []diagnose.Measured) {
	if len(chains) == 0 {
		fmt.Fprintln(w, "no rules are loaded here except those of Sluice")
		return
	}
	figure := func(e *stats.Estimate) string {
		if e == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f [%.0f, %.0f]", e.Median, e.Low, e.High)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ns a packet\tknown: rules\testimated\tmeasured\tnew: rules\testimated\tmeasured")
	for _, c := range chains {
		fmt.Fprintf(tw, "%s\t%d\t%.0f\t%s\t%d\t%.0f\t%s\n", c.Text(), c.Known.Rules, c.Known.NS, figure(c.KnownNS), c.New.Rules, c.New.NS, figure(c.NewNS))
	}
	_ = tw.Flush()
	for _, c := range chains {
		if c.Left != "" {
			fmt.Fprintf(w, "not measured: %s: %s\n", c.Text(), c.Left)
		}
	}
}
