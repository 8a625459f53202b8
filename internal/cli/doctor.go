package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/doctor"
	"sluice/internal/prove/check"
)

const defaultWatch = 2 * time.Second

func newDoctor() *cobra.Command {
	var explain, fix, undo string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what makes this host's network slow or lossy, with any firewall",
		Long: `Looks at the connection table, at what the kernel drops and why, at queues, sockets and
processors, for two seconds or as long as --watch says, and names what is wrong: the figures
and where they were read, what it costs, how to fix it and how to undo that. It needs no policy
and no agent, and changes nothing without --fix.

The worst comes first, causes before effects. An error loses packets or connections now; a
warning will, or costs much; a remark is worth knowing. What could not be read is listed.
Counters of processors, the kernel's log and the size of the connection table are for the
whole machine, everything else for the network namespace.

--fix changes the settings that fix a finding, if a program may (--list shows for which checks).
It shows what it will set and how to undo that, asks on a terminal (elsewhere it needs --yes),
and checks again whether the finding is gone. The old values return after --confirm, 60s by
default, unless you keep the new ones at the question or by "sluice confirm", even if this
command is gone by then. --undo restores the old values of what was kept.

Run it as root; otherwise much cannot be read.

Exit status: 0 nothing found, or remarks only; 1 errors or warnings, or, with --fix, a finding
that stays, has no automatic fix or was not confirmed; 2 bad use, or it failed.`,
		Example: `  sluice doctor
  sluice doctor --watch 60s --markdown > ticket.md
  sluice doctor --expect 20000/s
  sluice doctor --explain table-full
  sluice doctor --fix table-full --confirm 5m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("undo"):
				return undoFix(cmd.Context(), cmd, undo)
			case cmd.Flags().Changed("explain"):
				return explainCheck(cmd, explain)
			case given(cmd, "list"):
				return listChecks(cmd)
			}
			return runDoctor(cmd, fix)
		},
	}
	flags := cmd.Flags()
	command.AddTime(flags, "watch", defaultWatch, "count rates for `TIME`")
	flags.String("expect", "", "new connections that the host should sustain, as `N/s`")
	flags.Bool("markdown", false, "print Markdown, for a ticket")
	flags.StringVar(&explain, "explain", "", "explain what a `CHECK` looks for, and how to fix it")
	flags.Bool("list", false, "list all checks, and which of them --fix can fix")
	flags.StringVar(&fix, "fix", "", "change the settings that fix the findings of a `CHECK`, and check again")
	flags.StringVar(&undo, "undo", "", "undo what --fix has set for a `CHECK`")
	command.AddTime(flags, "confirm", 0, "undo --fix unless confirmed within `TIME`; 60s by default")
	flags.Bool("no-confirm", false, "keep the settings of --fix without confirmation")
	flags.Bool("persist", false, "set them at boot too, once they are kept")
	flags.Bool("yes", false, "do not ask before setting them")
	cmd.MarkFlagsMutuallyExclusive("explain", "list", "markdown", "fix", "undo")
	cmd.MarkFlagsMutuallyExclusive("confirm", "no-confirm")
	addMessage(cmd)
	addWait(cmd)
	completeChecks(cmd, "explain", func(*doctor.Check) bool { return true })
	completeChecks(cmd, "fix", func(c *doctor.Check) bool { return c.Fixable })
	completeChecks(cmd, "undo", func(c *doctor.Check) bool { return c.Fixable })
	return cmd
}

func completeChecks(cmd *cobra.Command, flag string, offered func(*doctor.Check) bool) {
	command.Must(cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var ids []string
		for _, c := range doctor.Checks() {
			if offered(&c) {
				ids = append(ids, c.ID+"\t"+c.What)
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}))
}

const (
	shortestWatch = time.Second
	longestWatch  = 24 * time.Hour
	mostExpected  = 1_000_000 // connections a second
)

func runDoctor(cmd *cobra.Command, fix string) error {
	o := doctor.Options{Window: command.TimeOf(cmd.Flags(), "watch"), Namespace: command.Netns(cmd)}
	if o.Window < shortestWatch || o.Window > longestWatch {
		return fmt.Errorf("--watch %s: give a time from %s to %s", o.Window, shortestWatch, longestWatch)
	}
	var err error
	if text, _ := cmd.Flags().GetString("expect"); text != "" {
		if o.Expect, err = expected(text); err != nil {
			return err
		}
	}
	if given(cmd, "markdown") && optionsOf(cmd).json {
		return errors.New("--markdown and --json exclude each other")
	}
	ctx, interrupt := command.Interruptible(cmd)
	defer interrupt()
	o.Since = tableSince(cmd)
	if cmd.Flags().Changed("fix") {
		return fixFinding(ctx, cmd, fix, o)
	}
	stop := tellWaiting(cmd, o.Window)
	report, err := doctor.Examine(ctx, o)
	stop()
	if err != nil {
		return err
	}
	return answer(cmd, report, report.Ill(), func(w io.Writer) {
		if given(cmd, "markdown") {
			report.Markdown(w)
			return
		}
		printDoctor(w, report)
	})
}

// tableSince is when a command sized the connection table last: what the kernel's log says of
// the one before is no illness of this one. Who may not read that is told of it still.
func tableSince(cmd *cobra.Command) (since time.Time) {
	if h, err := hostOf(cmd); err == nil {
		if t, err := h.Tuning(); err == nil {
			since = t.TableSince()
		}
	}
	return since
}

// expected reads "20000/s".
func expected(text string) (uint64, error) {
	var n uint64
	var rest string
	if _, err := fmt.Sscanf(text, "%d/%s", &n, &rest); err != nil || rest != "s" || n == 0 || n > mostExpected {
		return 0, fmt.Errorf("--expect %q is not a number of connections a second\nhint: write it as in --expect 20000/s", text)
	}
	return n, nil
}

// tellWaiting says on a terminal for how long is counted.
func tellWaiting(cmd *cobra.Command, window time.Duration) (stop func()) {
	w := cmd.ErrOrStderr()
	if !command.Colours(w) {
		return func() {}
	}
	fmt.Fprintf(command.Bare(w), "counting for %s", english.Duration(window))
	return func() { fmt.Fprint(command.Bare(w), clearLine) }
}

var severityStyle = map[check.Severity]string{check.Error: "31", check.Warning: "33", check.Remark: "36"}

func printDoctor(w io.Writer, r *doctor.Report) {
	for _, f := range r.Findings {
		printIllness(w, f)
	}
	if times := r.Times(); len(times) > 0 {
		fmt.Fprintf(w, "of processor time, in all network namespaces, went to packets\n%s\n", strings.Join(times, "\n"))
	}
	if chains := r.Chains(); len(chains) > 0 {
		fmt.Fprintf(w, "%s\n%s\n", doctor.ChainsHead, strings.Join(chains, "\n"))
	}
	for _, u := range r.Unread {
		fmt.Fprintf(w, "not read: %s\n", u)
	}
	fmt.Fprintln(w, r.Summary())
}

func printIllness(w io.Writer, f doctor.Finding) {
	fmt.Fprintf(w, "%s %s\n", command.Paint(w, severityStyle[f.Severity], fmt.Sprintf("%s: %s:", f.Severity, f.Check)), f.Text)
	for _, e := range f.Evidence {
		fmt.Fprintf(w, "  %s [%s]\n", e.Text, e.From)
	}
	printPart(w, "cost", f.Cost)
	printPart(w, "fix", f.Fix...)
	printPart(w, "undo", f.Undo...)
}

func printPart(w io.Writer, name string, lines ...string) {
	for i, l := range lines {
		if l != "" {
			fmt.Fprintf(w, "  %-6s%s\n", map[bool]string{true: name + ":"}[i == 0], l)
		}
	}
}

type checkJSON struct {
	Check    string         `json:"check"`
	Severity check.Severity `json:"severity"`
	What     string         `json:"what"`
	Why      string         `json:"why"`
	Fix      string         `json:"fix"`
	Undo     string         `json:"undo"`
	Fixable  bool           `json:"fixable"`           // by --fix
	ByHand   string         `json:"by-hand,omitempty"` // why it does not
}

func checkToJSON(c doctor.Check) checkJSON {
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	return checkJSON{c.ID, c.Least, c.What, flat(c.Why), flat(c.Fix), flat(c.Undo), c.Fixable, c.Unfixed()}
}

func listChecks(cmd *cobra.Command) error {
	all := []checkJSON{}
	for _, c := range doctor.Checks() {
		all = append(all, checkToJSON(c))
	}
	return answer(cmd, all, false, func(w io.Writer) {
		for _, c := range all {
			fmt.Fprintf(w, "%-18s %-8s %-5s %s\n", c.Check, c.Severity, map[bool]string{true: "--fix"}[c.Fixable], c.What)
		}
	})
}

func explainCheck(cmd *cobra.Command, id string) error {
	c, err := known(id)
	if err != nil {
		return err
	}
	return answer(cmd, checkToJSON(*c), false, func(w io.Writer) { fmt.Fprint(w, c.Text()) })
}
