package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/policy"
	"sluice/internal/words"
)

func newLog() *cobra.Command {
	var (
		count      int
		since, top string
		asked      engine.LogQuestion
	)
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show dropped and logged packets, with the policy's line",
		Long: `Shows the packets that policies with "log: netlink" sent to netlink log group 5171: those that
matched a line with log, and those that a default dropped or rejected. What bans drop is
counted and not logged: "sluice bans". Each packet has a line: its number, the time, the line of
the policy, source, the source's country by the country data of then, destination, the sets of
the policy's line that contained it, and the line itself.
--json prints everything, a value a line. --top counts instead. --src, --service, --country and
--line select packets; all that you give must match.

For each line of the policy at most 50 packets a second are logged, and for each source and
line 30 a minute, 10 of them at once, so that a scan does not hide everybody else. The rest is
dropped as usual and counted ("sluice status").

The agent keeps the log in files of 64 MiB together, unless its file sets another size; new
packets replace the oldest. Without the agent nothing is kept, and --follow reads from the
kernel itself, which one program at a time can. Without "log: netlink", lines with log write to
the kernel log (journalctl -k), and a note says so.
` + filesHelp + `

Exit status: 0 shown, or stopped; 2 bad use, no log is kept, or it could not be read.`,
		Example: "  sluice log --since 14:00\n  sluice log --follow --src 203.0.113.7 --service https\n  sluice log --line policy.yaml:22 --since 2h --json | jq .source\n  sluice log --top source --since 1d",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 0 {
				return fmt.Errorf("--count %d is negative", count)
			}
			if since != "" {
				var err error
				if asked.Since, err = sinceOf(since, time.Now()); err != nil {
					return fmt.Errorf("--since: %w", err)
				}
			}
			h, err := doorOf(cmd)
			if err != nil {
				return err
			}
			ctx, stop := command.Interruptible(cmd)
			defer stop()
			if top != "" {
				return showLogTop(ctx, cmd, h, asked, top)
			}
			return showLog(ctx, cmd, h, asked, count)
		},
	}
	asked.Called = words.LogFlags
	flags := cmd.Flags()
	flags.BoolVarP(&asked.Follow, "follow", "f", false, "show new packets, until interrupted")
	flags.StringVar(&since, "since", "", "show packets since `TIME`: 14:00, 2h, 2026-11-28, \"2026-11-28 14:00\"")
	flags.StringVar(&top, "top", "", "count packets `BY` source, country, service or line")
	flags.IntVar(&count, "count", 0, "end after `N` packets; 0 means never")
	flags.StringVar(&asked.Source, "src", "", "show packets from an `ADDRESS`, prefix or range")
	flags.StringVar(&asked.Service, "service", "", "show packets to a `SERVICE`, by its name in the policy or as tcp/22")
	flags.StringVar(&asked.Country, "country", "", "show packets from a `COUNTRY`, such as NO; for packets that the host sends, to it")
	flags.StringVar(&asked.Line, "line", "", "show packets logged by a `LINE`, such as policy.yaml:22, or 22 of any file")
	cmd.MarkFlagsMutuallyExclusive("top", "follow")
	cmd.MarkFlagsMutuallyExclusive("top", "count")
	command.Must(cmd.RegisterFlagCompletionFunc("top", command.Words("source", "country", "service", "line")))
	return cmd
}

// sinceOf reads a time of the clock, which is the last one that there was, a day, or how long
// ago something was.
func sinceOf(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.Local)
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			return at, nil
		}
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, time.RFC3339} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	if ago, _, ok := policy.ParseDuration(text); ok {
		return now.Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time\nhint: write 14:00, 2h, 2026-11-28 or \"2026-11-28 14:00\"", text)
}

func showLog(ctx context.Context, cmd *cobra.Command, h door, asked engine.LogQuestion, count int) error {
	collectSoon()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out, shown := cmd.OutOrStdout(), 0
	var failed error
	table := logTable{to: out}
	show := table.show
	if optionsOf(cmd).json {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		show = func(p engine.Logged) error { return encoder.Encode(p) }
	}
	_, err := h.Log(ctx, asked, func(p engine.Logged) {
		if failed != nil || count > 0 && shown == count {
			return
		}
		if p.Lost > 0 {
			note(cmd, fmt.Sprintf("%d more were logged but could not be kept or read in time", p.Lost))
		}
		if failed = show(p); failed != nil {
			stop()
			return
		}
		if shown++; shown == count {
			stop()
		}
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it was stopped
	}
	if err == nil && failed == nil && shown == 0 && !asked.Follow && !optionsOf(cmd).json {
		note(cmd, "the log has no such packet; what bans drop is counted, not logged: see sluice bans")
	}
	return errors.Join(err, failed)
}

// logTable writes packets, a line of 80 columns each, or more where a rule or an address is
// long.
type logTable struct {
	to  io.Writer
	day string
}

// columns is how wide the table is on a terminal.
const columns = 80

func (t *logTable) show(p engine.Logged) error {
	at := p.Time.Local()
	if day := at.Format(time.DateOnly); day != t.day {
		if t.day != "" || day != time.Now().Format(time.DateOnly) {
			fmt.Fprintln(t.to, command.Paint(t.to, "2", day))
		}
		t.day = day
	}
	line := loggedLine(p)
	number := ""
	if p.Number > 0 {
		number = fmt.Sprintf("%6d  ", p.Number)
	}
	text := fmt.Sprintf("%s%s  %-16s  %-15s  %-2s  %-9s  %s", number, at.Format(time.TimeOnly), line, p.Source, p.Country, p.Service(), inSets(p)+p.Rule)
	if text = fitting(t.to, command.PlainName(text)); line != "" {
		text = strings.Replace(text, line, command.Paint(t.to, "1", line), 1)
	}
	_, err := fmt.Fprintln(t.to, text)
	return err
}

// inSets says which sets of its line had a packet.
func inSets(p engine.Logged) string {
	if len(p.Sets) == 0 {
		return ""
	}
	return "[" + strings.Join(p.Sets, ", ") + "] "
}

// fitting is a line, cut at the width of the table on a terminal.
func fitting(w io.Writer, text string) string {
	if runes := []rune(text); command.IsTerminal(w) && len(runes) > columns {
		return string(runes[:columns-1]) + "…"
	}
	return text
}

// loggedLine is the line of the policy, or where that is not known the rule's id.
func loggedLine(p engine.Logged) string {
	if p.Line == 0 {
		return p.ID
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}
