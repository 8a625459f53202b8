package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/classes"
	"sluice/internal/prove/expect"
	"sluice/internal/words"
)

func newTest() *cobra.Command {
	var hostile bool
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Prove what the parts of a fleet expect, on all hosts",
		Long: `Proves the expectations of every host of the inventory for all packets, as "sluice test"
does, by classes of hosts that the policy treats alike.

With --hostile they are also proved against someone who holds the controller's keys. Within what
fleet.yaml allows, they can change sets by hosts and guests and live lists, and let in what
"exceptions" names. No expectation covers what they can ban; "never-ban" limits that.
A rule that allows is then proved with all that its set may hold; one that denies, or has the
set after not or except, with none of it. No ban is assumed. In an expectation a set means all
that it may hold. A set after not or except is also proved as empty: each of them and every
combination, at most six, separately for sources and destinations. So "deny ssh from not admins"
means that only members and possible members of admins get in, and nobody when it is empty.

Exit status: 0 all hold, 1 one does not, 2 bad use, a bad policy, or an expectation
that no packet can match.
` + repositoryFiles,
		Example: `  sluice-controller test
  sluice-controller test --hostile --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTest(cmd, hostile) },
	}
	addRepository(cmd.Flags())
	addOffline(cmd)
	cmd.Flags().BoolVar(&hostile, "hostile", false, "also prove them against someone who holds the controller's keys")
	return cmd
}

func runTest(cmd *cobra.Command, hostile bool) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	r, err := classify(ctx, cmd)
	if err != nil {
		return err
	}
	if err := r.sound(); err != nil {
		return err
	}
	done := counting(cmd, "test", len(r.classes))
	var mutex sync.Mutex
	proofs := map[*classes.Class][]*classes.Proof{}
	err = r.Each(ctx, r.classes, func(ctx context.Context, c *classes.Class) error {
		defer done(c)
		one, err := c.Test(ctx)
		if err != nil {
			return err
		}
		list := []*classes.Proof{one}
		if hostile {
			worst, err := c.Hostile(ctx)
			if err != nil {
				return err
			}
			list = append(list, worst...)
		}
		mutex.Lock()
		defer mutex.Unlock()
		proofs[c] = list
		return nil
	})
	if err != nil {
		return err
	}
	return reportTest(cmd, r.classes, proofs)
}

// provedJSON is what was found of a class.
type provedJSON struct {
	Class string `json:"class"`
	Hosts int    `json:"hosts"`
	Worst string `json:"worst,omitempty"`
	expect.Report
}

// failing is an expectation that fails, and for whom.
type failing struct {
	text    string
	classes []string
}

func reportTest(cmd *cobra.Command, list []*classes.Class, proofs map[*classes.Class][]*classes.Proof) error {
	out := []provedJSON{}
	var failed []*failing
	at := map[string]*failing{}
	total, bad := 0, map[*classes.Class]int{}
	for _, c := range list {
		for _, p := range proofs[c] {
			out = append(out, provedJSON{c.Name, len(c.Hosts), p.Worst, expect.ReportOf(c.Policy.File, p.Results)})
			total += len(p.Results)
			for i := range p.Results {
				r := &p.Results[i]
				if r.Holds() {
					continue
				}
				bad[c]++
				text := fmt.Sprintf("%s: %s", r.Expectation.Pos, r.Expectation.Text)
				why := "\n" + words.Failures(r.Failures, "        ")
				f := at[text+why]
				if f == nil {
					f = &failing{text: text}
					if p.Worst != "" {
						f.text += "\n        " + p.Worst
					}
					f.text += why
					at[text+why] = f
					failed = append(failed, f)
				}
				if !slices.Contains(f.classes, c.Name) {
					f.classes = append(f.classes, c.Name)
				}
			}
		}
	}
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		if err := printProofs(w, out); err != nil {
			return err
		}
	} else {
		for _, f := range failed {
			fmt.Fprintf(w, "%s  %s\n        for %s\n", command.Paint(w, "31", "FAILED"), f.text, english.Few(f.classes, 5))
		}
		for _, c := range list {
			said, n := command.Paint(w, "32", "ok")+"    ", 0
			for _, p := range proofs[c] {
				n += len(p.Results)
			}
			if bad[c] > 0 {
				said = command.Paint(w, "31", "FAILED")
			}
			fmt.Fprintf(w, "%s  %s: %s\n", said, c.Name, english.Plural(n, "proof"))
		}
	}
	switch {
	case len(failed) > 0 && command.JSON(cmd):
		return command.ErrFound
	case len(failed) > 0:
		return command.Found(fmt.Sprintf("%s of %s", english.Plural(len(failed), "failure"), english.Plural(total, "proof")))
	case total == 0 && !command.JSON(cmd):
		fmt.Fprintln(cmd.ErrOrStderr(), "the fleet expects nothing\nhint: write under expect in a part what must hold, such as - deny ssh from not office")
	}
	return nil
}

func printProofs(w io.Writer, out []provedJSON) error {
	holds := !slices.ContainsFunc(out, func(p provedJSON) bool { return !p.Holds })
	return command.PrintJSON(w, struct {
		Holds   bool         `json:"holds"`
		Classes []provedJSON `json:"classes"`
	}{holds, out})
}
