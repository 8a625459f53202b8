package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/conntrack"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what runs, what it counted, and whether it is intact",
		Long: `Shows the running generation, what waits for confirmation, what is loaded at boot, and what each
line of the policy has counted. Rules and sets are read back from the kernel and compared by
meaning with what was loaded: even an element that somebody removed is reported. It also lists
full tables of sources, files of the policy (includes and set files too) that changed since it
was applied, and country data older than 60 days; the last two do not change the exit status. It
shows the use of the connection table, and from 80 % on how to make room. From the agent's log it
shows the last five sources that were dropped.

On a terminal it fits one screen of 25 lines: long lists are cut, and of the lines of the policy
the busiest are shown. --all shows everything, as in a pipe.
` + filesHelp + `

Exit status: 0 what was loaded runs; 1 it does not, somebody removed it, or the state no longer
shows what should run; 2 bad use, or it could not be read.`,
		Example: "  sluice status\n  sluice status --all\n  sluice status --watch --fast\n  sluice status --json | jq .drift",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			if given(cmd, "watch") {
				return watchStatus(ctx, cmd, h)
			}
			s, err := h.Status(ctx, !given(cmd, "fast"))
			if err != nil {
				return err
			}
			return answer(cmd, s, !s.Fine(), func(w io.Writer) { showStatus(cmd, w, s) })
		}),
	}
	cmd.Flags().Bool("all", false, "show everything, on a terminal too")
	cmd.Flags().Bool("watch", false, "refresh every 2 seconds, until interrupted")
	cmd.Flags().Bool("fast", false, "do not read the elements of large sets")
	addWait(cmd)
	return cmd
}

// watchTime is how often a status is shown that is watched.
const watchTime = 2 * time.Second

// clearScreen goes to the upper left corner and clears all behind it (ECMA-48, CUP and ED).
const clearScreen = "\x1b[H\x1b[2J"

// watchStatus shows the status until the context ends. What fails may be over the next time,
// but for the first.
func watchStatus(ctx context.Context, cmd *cobra.Command, h door) error {
	collectSoon()
	w := cmd.OutOrStdout()
	for first := true; ; first = false {
		s, err := h.Status(ctx, !given(cmd, "fast"))
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was interrupted
		case first && err != nil:
			return err
		}
		if command.Colours(w) && !optionsOf(cmd).json {
			fmt.Fprint(command.Bare(w), clearScreen)
		}
		if err == nil {
			err = answer(cmd, s, false, func(w io.Writer) { showStatus(cmd, w, s) })
			if err != nil {
				return err // of writing
			}
		} else {
			fmt.Fprintln(w, hinted(cmd)(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchTime):
		}
	}
}

func showStatus(cmd *cobra.Command, w io.Writer, s *apply.Status) {
	here := command.HereArguments(cmd)
	if command.IsTerminal(w) && !given(cmd, "all") {
		fmt.Fprint(w, screenOf(w, s, here))
		return
	}
	printStatus(w, s, here)
	printCounters(w, s.Counters)
}

func printStatus(w io.Writer, s *apply.Status, here string) {
	if s.Shadow { // beside nothing too
		defer fmt.Fprintln(w, "shadow       a policy is tried in shadow (sluice shadow); it enforces nothing and ends by itself")
	}
	switch s.Condition {
	case apply.Nothing:
		fmt.Fprintln(w, "no policy runs")
		printFleet(w, s.Fleet, here)
		printLost(w, s)
		return
	case apply.Changing:
		fmt.Fprintf(w, "%s is changing the firewall\n", s.Busy)
	case apply.Gone:
		fmt.Fprintf(w, "%s generation %d should run, but somebody removed its rules\n", command.Paint(w, "31", "GONE"), s.Generation.Number)
		fmt.Fprintf(w, "hint         sluice restore%s loads the confirmed policy\n", here)
	case apply.Unmarked:
		fmt.Fprintf(w, "%s generation %d should run; somebody deleted table sluice_generation, which marks it in the kernel\n", command.Paint(w, "31", "UNMARKED"), s.Generation.Number)
		if s.Boot == s.Generation.Number {
			fmt.Fprintf(w, "hint         sluice restore%s puts it back\n", here)
		} else {
			fmt.Fprintln(w, "hint         apply the policy again")
		}
	case apply.Foreign:
		fmt.Fprintf(w, "%s rules of Sluice are loaded that this state directory does not know (%s)\n", command.Paint(w, "31", "UNKNOWN"), orNone(s.Mark))
		fmt.Fprintf(w, "hint         apply a policy, or sluice remove%s\n", here)
	}
	if g := s.Generation; g != nil {
		fmt.Fprintf(w, "generation   %d of %s\n", g.Number, policyName(g))
		fmt.Fprintf(w, "since        %s%s\n", s.Since.Local().Format(time.DateTime), by(g.By))
		printProved(w, s, here)
		if g.Closed {
			fmt.Fprintf(w, "%s       the confirmed policy could not be restored: only ssh is allowed\n", command.Paint(w, "31", "closed"))
			fmt.Fprintf(w, "hint         apply a policy, or sluice rollback%s to a generation of sluice history%s\n", here, here)
		}
	}
	switch {
	case s.Pending != nil && s.Pending.Left() == 0 && s.Condition == apply.Changing:
		fmt.Fprintf(w, "%s      time is up: going back to %s\n", command.Paint(w, "33", "pending"), generationName(s.Pending.Previous))
	case s.Pending != nil && s.Pending.Left() == 0:
		fmt.Fprintf(w, "%s      was not confirmed in time, and going back to %s failed: the watcher and the next command try again\n",
			command.Paint(w, "31", "pending"), generationName(s.Pending.Previous))
	case s.Pending != nil:
		fmt.Fprintf(w, "%s      goes back to %s in %s unless you run: sluice confirm%s\n", command.Paint(w, "33", "pending"),
			generationName(s.Pending.Previous), leftText(s.Pending), here)
	case s.Generation != nil && s.Boot != s.Generation.Number:
		fmt.Fprintf(w, "boot         %s\n", generationName(s.Boot))
	}
	printLost(w, s)
	printWatched(w, s.Agent, here)
	printFleet(w, s.Fleet, here)
	if s.Condition != apply.Running && s.Condition != apply.Unmarked {
		return
	}
	for _, f := range s.Generation.Broken {
		fmt.Fprintf(w, "%s       %s %s: %s\n", command.Paint(w, "33", "broken"), command.PlainName(f.File), f.Instead(), strings.ReplaceAll(f.Errors, "\n", "\n             "))
	}
	for _, name := range s.Edited {
		fmt.Fprintf(w, "%s       %s is not what runs: sluice diff%s %s shows what it would change\n", command.Paint(w, "33", "edited"), command.PlainName(name), here, command.PlainName(command.ShellWord(s.Generation.Policy)))
	}
	if s.EditedUnread != "" {
		fmt.Fprintf(w, "%s       the policy file cannot be compared with what runs: %s\n", command.Paint(w, "33", "edited"), strings.ReplaceAll(s.EditedUnread, "\n", "\n             "))
	}
	if !s.OldCountries.IsZero() {
		fmt.Fprintf(w, "%s          the rules have the country data of %s: sluice geo update, then sluice refresh%s --countries\n", command.Paint(w, "33", "old"), geoDate(s.OldCountries, time.Now()), here)
	}
	for _, d := range s.Due {
		printDue(w, d, time.Now())
	}
	for _, i := range s.Waiting {
		printWaiting(w, i, s.Boot == s.Generation.Number, here)
	}
	if s.Grace > 0 {
		fmt.Fprintf(w, "%s        %s\n", command.Paint(w, "33", "grace"), graceText(s.Grace))
	}
	printStanding(w, s.Host, s.Generation.Number, here)
	printDrift(w, s, here)
	printConnections(w, s.Connections)
	for _, c := range s.Full {
		fmt.Fprintf(w, "%s         the table of %s:%d was full for %s: sources beyond it share one limit\n",
			command.Paint(w, "33", "full"), c.Origin.File, c.Origin.Line, english.Plural(c.Packets, "packet"))
	}
	if s.Uncounted {
		fmt.Fprintln(w, "rules        not counted, by counters: false")
	}
	printAddresses(w, s)
	printDropped(w, s.Dropped)
}

// fullPercent is from when on a connection table is said to be nearly full.
const fullPercent = 80

func printConnections(w io.Writer, t *conntrack.Table) {
	if t == nil {
		return
	}
	text := english.Grouped(t.Entries) + " " + english.Noun(t.Entries, "entry")
	if t.Most > 0 {
		text = fmt.Sprintf("%s of %s entries (%d %%)", english.Grouped(t.Entries), english.Grouped(t.Most), t.Percent())
	}
	if t.Peak > 0 {
		text += fmt.Sprintf(", peak %s at %s", english.Grouped(t.Peak), t.PeakAt.Local().Format(time.DateTime))
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{{t.Dropped, "without room for an entry"}, {t.Evicted, "evicted for new ones"}, {t.Failed, "not inserted"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %s %s", english.Grouped(c.n), c.what)
		}
	}
	label := "connections "
	if t.Percent() >= fullPercent {
		label = command.Paint(w, "33", "connections") + " "
	}
	fmt.Fprintf(w, "%s %s\n", label, text)
	if t.Percent() >= fullPercent {
		fmt.Fprintf(w, "hint         tracking: {table: {max: %d}} in the policy, then sluice apply, makes room\n", 2*t.Most)
	}
}

// printLost says that the next boot closes the host.
func printLost(w io.Writer, s *apply.Status) {
	if s.Lost != "" {
		fmt.Fprintf(w, "%s         the next boot closes the host except for ssh, since the confirmed policy is unknown: %s\n", command.Paint(w, "31", "lost"), s.Lost)
		fmt.Fprintln(w, "hint         apply a policy")
	}
}

// mostFindings is how many of the agent's findings are printed.
const mostFindings = 3

// printWatched says what the agent found, and did about it.
func printWatched(w io.Writer, a *apply.Watched, here string) {
	if a == nil {
		return
	}
	for i, f := range a.Findings {
		if i == mostFindings {
			fmt.Fprintf(w, "             and %d more (--json names them)\n", len(a.Findings)-i)
			break
		}
		who := ""
		if f.By != "" {
			who = ", changed by " + f.By
		}
		fmt.Fprintf(w, "%s        since %s%s: %s\n", command.Paint(w, "31", "agent"), f.Since.Local().Format(time.DateTime), command.PlainName(who), command.PlainName(f.Text))
	}
	if !a.Stopped.IsZero() {
		fmt.Fprintf(w, "%s        drift is no longer repaired since %s, after %s: sluice restore%s starts it again\n", command.Paint(w, "31", "agent"), a.Stopped.Local().Format(time.DateTime), english.Plural(len(a.Restores), "restore"), here)
	}
	if l := a.Last; l != nil && len(a.Findings) == 0 && a.Stopped.IsZero() {
		text, _, _ := strings.Cut(l.Text, "\n")
		fmt.Fprintf(w, "agent        %s: %s\n", l.Time.Local().Format(time.DateTime), command.PlainName(text))
	}
}

// printStanding says what of the host has changed since the rules were loaded.
func printStanding(w io.Writer, h apply.Standing, generation int, here string) {
	for _, m := range h.Moved {
		fmt.Fprintf(w, "%s         %s since generation %d: sluice sync%s brings it in\n", command.Paint(w, "31", "host"), m, generation, here)
	}
	for _, text := range h.Fixed {
		fmt.Fprintf(w, "%s         %s since generation %d, and the rules depend on it: apply the policy again\n", command.Paint(w, "31", "host"), text, generation)
	}
	for i, m := range h.Taken {
		times, later := 0, false
		for j, o := range h.Taken {
			if o.Set == m.Set {
				times, later = times+1, later || j > i
			}
		}
		if later {
			continue // the last move of each is told
		}
		text := ""
		if times > 1 {
			text = fmt.Sprintf(", the last of %s%d moves", choice(len(h.Taken) == apply.KeptMoves, "at least ", ""), times)
		}
		fmt.Fprintf(w, "host         %s, taken over %s%s\n", m, m.Taken.Local().Format(time.DateTime), text)
	}
	if len(h.Lost) > 0 {
		fmt.Fprintf(w, "%s         %s\n", command.Paint(w, "33", "host"), apply.NoDefaultRoute(h.Lost))
	}
}

// printDue says when what the policy takes from elsewhere is asked for.
func printDue(w io.Writer, d apply.Due, now time.Time) {
	what, of, nobody := "list "+d.List, "no copy", "sluice refresh"
	if d.List == "" {
		what, of, nobody = "country data", "of no date", "sluice geo update"
	}
	switch {
	case d.Of.IsZero():
	case d.List == "":
		of = "of " + d.Of.Format(time.DateOnly)
	default:
		of = "copy of " + d.Of.Local().Format(time.DateTime)
	}
	at := "at " + d.At.Local().Format(time.DateTime)
	if d.At.Before(now) {
		at = "now"
	}
	switch {
	case d.By == "" && (d.At.IsZero() || d.At.After(now)):
		fmt.Fprintf(w, "due          %s (%s): only %s downloads it\n", what, of, nobody)
	case d.By == "":
		fmt.Fprintf(w, "%s          %s (%s): since %s, and only %s downloads it\n", command.Paint(w, "33", "due"), what, of, d.At.Local().Format(time.DateTime), nobody)
	default:
		fmt.Fprintf(w, "due          %s (%s): %s, by the %s\n", what, of, at, d.By)
	}
	if d.Failed != "" {
		fmt.Fprintf(w, "%s       %s: %s\n", command.Paint(w, "33", "failed"), what, strings.ReplaceAll(d.Failed, "\n", "\n             "))
	}
}

// printWaiting says what the rules were loaded without.
func printWaiting(w io.Writer, i apply.Waiting, boots bool, here string) {
	fix := "apply the policy again"
	if boots {
		fix = "sluice sync" + here
	}
	if i.There {
		fmt.Fprintf(w, "%s      interface %s appeared after the rules were loaded: %s adds it\n", command.Paint(w, "33", "waiting"), i.Interface, fix)
		return
	}
	fmt.Fprintf(w, "%s      interface %s does not exist, so the rules were loaded without it; once it is up: %s\n", command.Paint(w, "33", "waiting"), i.Interface, fix)
}

func printDrift(w io.Writer, s *apply.Status, here string) {
	if len(s.Drift)+len(s.Sysctls)+len(s.Exceptions) == 0 {
		fmt.Fprintln(w, "drift        none")
		return
	}
	for _, d := range s.Drift {
		fmt.Fprintf(w, "%s        %s\n", command.Paint(w, "31", "drift"), apply.DescribeDifference(d))
	}
	for _, d := range s.Sysctls {
		fmt.Fprintf(w, "%s        sysctl %s: want %s, have %s\n", command.Paint(w, "31", "drift"), d.Name, d.Want, d.Have)
	}
	for _, d := range s.Exceptions {
		fmt.Fprintf(w, "%s        %s\n", command.Paint(w, "31", "drift"), d)
	}
	if s.Generation != nil && s.Boot == s.Generation.Number {
		fmt.Fprintf(w, "hint         sluice restore%s puts it back\n", here)
	} else {
		fmt.Fprintln(w, "hint         apply the policy again")
	}
}

func counterText(c apply.Counter) string {
	text := c.Comment
	if c.Origin.Text != "" {
		text = c.Origin.Text
	}
	if text == "" {
		text = c.Name
	}
	if c.Origin.File == "" || c.Origin.Line == 0 {
		return text
	}
	return fmt.Sprintf("%s:%d: %s", command.PlainName(c.Origin.File), c.Origin.Line, text)
}

// by says who made a change, and why.
func by(a apply.Author) string {
	text := whoText(a)
	switch {
	case a.User != "":
		text = ", by " + text
	case text != "":
		text = " " + text
	}
	if a.Reason != "" {
		text += fmt.Sprintf(": %q", a.Reason)
	}
	return command.PlainName(text)
}

func whoText(a apply.Author) string {
	text := a.User
	if a.From != "" {
		text += " from " + a.From
	}
	if a.Via != "" {
		text += " via " + a.Via
	}
	return strings.TrimSpace(text)
}

// graceText says how long connections pass that nobody knows.
func graceText(seconds float64) string {
	left := max(time.Duration(seconds*float64(time.Second)).Round(time.Second), time.Second)
	return fmt.Sprintf("unknown connections pass for %s more, since tracking has just begun", left)
}
