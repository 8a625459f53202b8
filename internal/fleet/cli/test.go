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
		Long: `Proves the expectations of every host of the inventory, by classes of hosts that the
policy treats alike, for all packets as "sluice test" does.

With --hostile they are proved too whatever somebody makes of the keys that a
controller has: he may change who is in sets by hosts and guests and in live lists, and
let in whom "exceptions" names, within what fleet.yaml allows. What he may ban is proved by no
expectation: "never-ban" says whom not. A rule that allows then has all that its set may hold; one that
denies, or has the set behind not or except, has none of it, and neither has a ban. An
expectation means by a set all that it may hold; where it has one behind not or except,
it is proved as well for who is not in that set, of each such set and of all subsets of
them, at most six, for sources and destinations apart. So "deny ssh from not admins"
says that only who is or may be in admins gets in, and that nobody does when it is empty.

Exit status: 0 all hold, 1 one does not, 2 bad use, a bad policy, or an expectation
that no packet can fit.
` + repositoryFiles,
		Example: `  sluice-controller test
  sluice-controller test --hostile --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTest(cmd, hostile) },
	}
	addRepository(cmd.Flags())
	addOffline(cmd)
	cmd.Flags().BoolVar(&hostile, "hostile", false, "prove them whatever the controller's keys are used for, too")
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
