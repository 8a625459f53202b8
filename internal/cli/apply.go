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
		Short: "Load a policy, and roll it back unless confirmed",
		Long: `Compiles a policy and loads it without a gap: sets are filled first, then one small
transaction switches all rules. What the kernel holds is then read back, compared, and proved
to treat every packet as the policy says (see sluice verify); if it does not, the old policy
returns. If only a few single addresses of set files came or went, only these are read back
and nothing is proved again.

It reports what opens and closes compared with the policy that ran, as "sluice diff --brief"
does, unless finding that takes more than five seconds.

With --confirm the old state (sysctls too) returns after the given time unless "sluice
confirm" is run, even if this command, the terminal or the ssh session is gone by then. On a
terminal over ssh this is the default, and the command asks; --no-confirm turns it off. Only a
confirmed policy is loaded at boot. While a policy waits for confirmation, another one needs
--confirm or --no-confirm.

The expectations of the policy ("expect") are proved before anything is loaded, as "sluice
test" does; if one fails, the policy is refused, unless you give --no-expect. This host may
have expectations of its own for every policy, in /etc/sluice/guard.yaml or, for a network
namespace, /etc/netns/NAME/sluice/guard.yaml: a list under expect, with sets, zones and
services of its own. A policy that breaks those is refused whatever flags you give.

On a host of a fleet ("sluice agent enrol") the fleet decides which policy runs; any other is
refused without --detach.

A policy that would refuse a new ssh connection of somebody who is logged in is not loaded
without --force, nor is one that takes more than half of the free memory. A forced lock-out
has to be confirmed within 60s, unless you give --no-confirm.
` + profileHelp + passesHelp + passesForgotten + policyHelp + `

Environment: SSH_CONNECTION, of this process or a parent, shows that the terminal is over
ssh, and from which address.

Exit status: 0 applied, or nothing to change; 1 refused, or not confirmed and rolled back;
2 bad use or bad input, or loading failed and the old state stays.`,
		Example: `  sluice apply /etc/sluice/policy.yaml
  sluice apply policy.yaml --confirm 2m
  sluice apply policy.yaml --netns customer7`,
		Args: policyAndProfile,
		RunE: onHost(runApply),
	}
	flags := cmd.Flags()
	command.AddTime(flags, "confirm", 0, "roll back unless confirmed within `TIME`")
	flags.Bool("no-confirm", false, "keep it at once, without confirmation, even if it locks somebody out")
	flags.Bool("force", false, "apply even if it locks somebody out or takes too much memory")
	flags.Bool("cut", false, "end existing connections that the new policy refuses")
	flags.Bool("detach", false, "apply on a host of a fleet; the fleet decides again after \"sluice agent attach\"")
	flags.Bool("no-expect", false, "do not prove the expectations of the policy")
	flags.Bool("no-verify", false, "do not read the rules back or prove them")
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
		fmt.Fprintf(w, "%s runs again, which allows only ssh: apply a policy\n", closedText(out.Generation))
	case out.Unchanged:
		fmt.Fprintf(w, "nothing to change: %s runs\n", policyText(out.Generation, out.Policy))
	case out.Generation == 0:
		fmt.Fprintln(w, "removed: no policy runs; only rules of other tools, if any, filter packets now")
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
		fmt.Fprintf(w, "ended %s that it refuses\n", english.Plural(out.Cut, "flow"))
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
			fmt.Fprintf(w, "and %d more lines\n", len(lines)-i)
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
		fmt.Fprintf(w, "too late to answer: another command confirmed or replaced %s\n", t.what)
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
