package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/program"
	"sluice/internal/prove/query"
	"sluice/internal/system/host"
)

// defaultConfirm is how long a policy waits on a terminal over ssh.
const defaultConfirm = 60 * time.Second

func newApply() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply [FILE]",
		Short: "Load a policy into the kernel, and take it back unless confirmed",
		Long: `Compiles a policy and loads it without a gap: sets are filled first, then one
small transaction switches all rules. What the kernel then holds is read back and
compared, and proved to do with every packet what the policy says (see sluice
verify); where it does not, the old policy returns. Where no more than a few single
addresses of set files came or went, these alone are read back, and nothing is proved anew.

It says what opens and closes against the policy that ran, in a few lines as "sluice
diff --brief" has them, unless that takes more than five seconds to find.

With --confirm the old state (sysctls too) returns by itself after the given time
unless "sluice confirm" comes, even when this command, the terminal or the ssh
session is gone by then. On a terminal over ssh this is the default, and the
command asks; --no-confirm turns it off. Only a confirmed policy is loaded at
boot.

While a policy waits for its confirmation, another one is applied only with
--confirm, or with --no-confirm.

What stands under expect in the policy is proved before anything is loaded, as
"sluice test" does it. Where an expectation fails the policy is refused;
--no-expect does not ask. What the host expects of every policy stands in its own
/etc/sluice/guard.yaml, for a network namespace in /etc/netns/NAME/sluice/guard.yaml:
a list under expect, with sets, zones and services of its own. A policy that breaks it
is refused, whatever flags are given.

On a host of a fleet ("sluice agent enrol") the fleet decides which policy runs, and
another one is refused without --detach.

A policy under which a new ssh connection of somebody who is logged in would be
refused is not loaded, nor one that takes more than half of the free memory;
--force does. What locks somebody out then has to be confirmed within 60s, unless
--no-confirm is given.
` + profileHelp + passesHelp + passesForgotten + policyHelp + `

Environment: SSH_CONNECTION, of this process or of one above it, says that the
terminal is over ssh, and from where.

Exit status: 0 applied (or already so), 1 refused, or not confirmed and taken
back, 2 bad use or bad input, or loading failed: the old state then stays.`,
		Example: `  sluice apply /etc/sluice/policy.yaml
  sluice apply policy.yaml --confirm 2m
  sluice apply policy.yaml --netns customer7`,
		Args: policyAndProfile,
		RunE: onHost(runApply),
	}
	flags := cmd.Flags()
	command.AddTime(flags, "confirm", 0, "bring back what was before unless confirmed within `TIME`")
	flags.Bool("no-confirm", false, "keep it for good at once, whatever waits and whoever is locked out")
	flags.Bool("force", false, "apply also what locks out a peer or takes too much memory")
	flags.Bool("cut", false, "delete the flows that the new policy refuses")
	flags.Bool("detach", false, "apply it on a host of a fleet, which then decides nothing until \"sluice agent attach\"")
	flags.Bool("no-expect", false, "do not prove what the policy is expected to do")
	flags.Bool("no-verify", false, "do not read the rules back, and prove nothing")
	addProfile(cmd)
	addPasses(cmd)
	cmd.MarkFlagsMutuallyExclusive("confirm", "no-confirm")
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

func runApply(ctx context.Context, cmd *cobra.Command, h door, args []string) error {
	o, ask, err := applyOptions(cmd)
	if err != nil {
		return err
	}
	r, err := request(cmd, args)
	if err != nil {
		return err
	}
	out, err := h.Apply(ctx, r, o)
	if err != nil {
		return err
	}
	return printApplied(ctx, cmd, h, out, ask)
}

// applyOptions reads the flags; ask says that somebody is there to be asked.
func applyOptions(cmd *cobra.Command) (o apply.Options, ask bool, err error) {
	flags := cmd.Flags()
	if o.Confirm, err = confirmTime(cmd); err != nil {
		return o, false, err
	}
	o.Force, o.Cut, o.Verify, o.Keep = given(cmd, "force"), given(cmd, "cut"), !given(cmd, "no-verify"), given(cmd, "no-confirm")
	terminal := onTerminal(cmd)
	if !flags.Changed("confirm") && !o.Keep && terminal && host.OwnSession() != nil {
		o.Confirm = defaultConfirm
	}
	return o, terminal && !o.Keep && !optionsOf(cmd).json, nil
}

// onTerminal says that somebody sits at a terminal and can be asked.
func onTerminal(cmd *cobra.Command) bool {
	in, is := cmd.InOrStdin().(*os.File)
	return is && term.IsTerminal(int(in.Fd()))
}

// terminal is where questions go: to the terminal itself, wherever the output
// of the command goes.
func terminal(cmd *cobra.Command) (w io.Writer, done func()) {
	tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return cmd.ErrOrStderr(), func() {}
	}
	return tty, func() { _ = tty.Close() }
}

// printApplied says what came of an apply or a rollback, and asks where somebody is
// there.
func printApplied(ctx context.Context, cmd *cobra.Command, h door, out *apply.Outcome, ask bool) error {
	if optionsOf(cmd).json {
		return command.PrintJSON(cmd.OutOrStdout(), out)
	}
	w := cmd.OutOrStdout()
	tellOutcome(cmd, w, out)
	if out.Pending == nil {
		return nil
	}
	if ask {
		return askToKeep(ctx, cmd, w, h, policyTrial(h, out))
	}
	fmt.Fprintf(w, "it goes back to %s in %s unless you run: sluice confirm%s\n",
		generationName(out.Pending.Previous), leftText(out.Pending), command.HereArguments(cmd))
	return nil
}

func tellOutcome(cmd *cobra.Command, w io.Writer, out *apply.Outcome) {
	switch {
	case out.Closed:
		fmt.Fprintf(w, "%s runs again, which lets only ssh in: apply a policy\n", closedText(out.Generation))
	case out.Unchanged:
		fmt.Fprintf(w, "nothing to change: %s runs\n", policyText(out.Generation, out.Policy))
	default:
		fmt.Fprintf(w, "%s runs\n", policyText(out.Generation, out.Policy))
	}
	printHeadline(w, out.Meaning, mostHeadline)
	if out.Times != nil {
		fmt.Fprintf(w, "applied in %s\n", timesText(out.Times))
	}
	if text := out.Adopted.Text(); text != "" {
		fmt.Fprintln(w, text)
	}
	if out.Proof != nil && out.Proof.Proved {
		fmt.Fprintf(w, "proved: every packet gets what it says %s\n", provedText(out.Proof))
	}
	for _, n := range out.Notes {
		note(cmd, strings.ReplaceAll(n, program.RefreshCommand, program.RefreshCommand+command.HereArguments(cmd)))
	}
	if given(cmd, "cut") {
		fmt.Fprintf(w, "%s deleted that it refuses\n", english.Plural(out.Cut, "flow"))
	}
}

// mostHeadline is how many lines say what an apply opens and closes.
const mostHeadline = 5

func printHeadline(w io.Writer, lines []query.BriefLine, most int) {
	if lines != nil && len(lines) == 0 {
		fmt.Fprintln(w, "no difference: every packet is treated as before")
	}
	for i, l := range lines {
		if i == most && len(lines) > i+1 {
			fmt.Fprintf(w, "and %s more of what opens and closes\n", english.Plural(len(lines)-i, "line"))
			return
		}
		fmt.Fprintln(w, command.Paint(w, changeStyles[l.Kind], l.String()))
	}
}

// leftText is the time that is left, never 0s, such as 59m40s, 1m or 12s.
func leftText(p *apply.Pending) string {
	return english.Duration(max(p.Left().Truncate(time.Second)+time.Second, time.Second))
}

// policyText names what runs, such as "generation 8 of web.yaml".
func policyText(generation int, file string) string {
	if generation == 0 || file == "" {
		return generationName(generation)
	}
	return generationName(generation) + " of " + file
}

// closedText names the closed policy that runs.
func closedText(generation int) string {
	return fmt.Sprintf("the closed policy (generation %d)", generation)
}

func generationName(n int) string {
	if n == 0 {
		return "no policy"
	}
	return fmt.Sprintf("generation %d", n)
}

// trial is what waits for a confirmation, as somebody is asked about it.
type trial struct {
	what    string // "this policy"
	back    string // what it goes back to
	pending *apply.Pending
	ended   func() bool // another command confirmed or replaced it
	refuse  func() error
}

// policyTrial is that of a policy.
func policyTrial(h door, out *apply.Outcome) trial {
	return trial{
		what: "this policy", back: generationName(out.Pending.Previous), pending: out.Pending,
		ended: func() bool {
			now, err := h.History()
			return err == nil && (now.Pending == nil || now.Pending.Token != out.Pending.Token)
		},
		refuse: func() error {
			out, err := h.Rollback(context.Background(), apply.Before, apply.Options{})
			if err != nil {
				return err
			}
			return command.Found(fmt.Sprintf("not confirmed: %s runs again", generationName(out.Generation)))
		},
	}
}

// askToKeep asks on the terminal. An answer proves that the terminal still
// works; no answer is the watcher's business.
func askToKeep(ctx context.Context, cmd *cobra.Command, to io.Writer, h door, t trial) error {
	w, done := terminal(cmd)
	defer done()
	answers := make(chan string, 1)
	go func() { answers <- readLine(cmd.InOrStdin()) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		left := t.pending.Left().Round(time.Second)
		fmt.Fprintf(w, "\r\x1b[Kkeep %s? [y/N] (%.0fs) ", t.what, left.Seconds())
		select {
		case answer := <-answers:
			return answered(to, h, t, answer)
		case <-ctx.Done():
			fmt.Fprintln(w)
			return answered(to, h, t, "n")
		case <-tick.C:
		}
		if left == 0 {
			fmt.Fprintln(w)
			return command.Found("not confirmed: going back to " + t.back)
		}
	}
}

// readLine reads byte by byte, so that nothing is taken from what comes after.
func readLine(in io.Reader) string {
	var line []byte
	for buf := make([]byte, 1); len(line) < 100; {
		if n, err := in.Read(buf); n == 0 || err != nil || buf[0] == '\n' {
			break
		}
		line = append(line, buf[0])
	}
	return string(line)
}

func answered(w io.Writer, h door, t trial, answer string) error {
	if t.ended() {
		fmt.Fprintf(w, "nothing to answer any more: another command confirmed or replaced %s\n", t.what)
		return nil
	}
	switch answer {
	case "y", "Y", "yes", "Yes":
		n, err := h.Confirm(context.Background())
		if err != nil {
			return err
		}
		fmt.Fprintln(w, confirmedText(n))
		return nil
	}
	return t.refuse()
}
