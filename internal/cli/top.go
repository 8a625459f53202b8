package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

func newTop() *cobra.Command {
	var q engine.TopQuestion
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what the host does with its packets",
		Long: `Shows packets and bytes by verdict and by line of the policy, new connections a second, use of the
connection table, which sources and countries use most of it, what the kernel drops and why, and
how much of each processor receiving packets takes. Without a policy of Sluice it shows everything
but the lines. It changes nothing.

Lines count the packets that reach them: of an allowed connection, the first. New connections are
counted by the kernel's own events, drops by a BPF program where the kernel drops a packet.
Sources are counted by reading the connection table, as often as 2 % of one processor allows; the
time of the last reading is shown.

On a terminal it is one screen: tab goes to the next table, s sorts by the next column, / filters
rows by a text, p pauses, enter explains a row by an example packet, and q quits. Elsewhere each
reading is printed.

Through an agent its readers may use it. --json prints everything, a value for each reading.

Exit status: 0 shown, or stopped; 2 bad use, or it could not be read.`,
		Example: "  sluice top\n  sluice top --once --interval 10s\n  sluice top --once --json | jq '.lines[] | select(.verdict == \"drop\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Every = command.TimeOf(cmd.Flags(), "interval")
			if q.Every < engine.LeastTop || q.Every > engine.MostTop {
				return fmt.Errorf("--interval %s: give a time from %s to %s", english.Duration(q.Every), english.Duration(engine.LeastTop), english.Duration(engine.MostTop))
			}
			if !q.Once && onScreen(cmd) {
				ctx, stop := command.Interruptible(cmd)
				defer stop()
				ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal may be there still
				defer stop()
				return showTopScreen(ctx, cmd, q)
			}
			return onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
				return showTop(ctx, cmd, h, q)
			})(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&q.Once, "once", false, "print one reading")
	command.AddTime(flags, "interval", 2*time.Second, "read every `TIME`")
	return cmd
}

// showTop prints each look.
func showTop(ctx context.Context, cmd *cobra.Command, h door, q engine.TopQuestion) error {
	collectSoon()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	_, err := h.Top(ctx, q, func(t *engine.Top) {
		if failed != nil {
			return
		}
		if failed = answer(cmd, t, false, func(w io.Writer) { printTop(w, t) }); failed != nil {
			stop() // nobody reads it
		}
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it was stopped
	}
	return errors.Join(err, failed)
}

// topOnceRows are those of each table that are printed.
const topOnceRows = 20

func printTop(w io.Writer, t *engine.Top) {
	for _, line := range topHead(t, columns) {
		fmt.Fprintln(w, line)
	}
	for _, table := range topTables(t) {
		if len(table.rows) == 0 {
			continue
		}
		table.sort(0)
		fmt.Fprintln(w)
		rows := table.text(table.rows[:min(len(table.rows), topOnceRows)], columns)
		for _, row := range rows {
			fmt.Fprintln(w, row)
		}
		if more := len(table.rows) - topOnceRows; more > 0 {
			fmt.Fprintf(w, "and %d more: --json shows them\n", more)
		}
	}
	if len(t.Missing) > 0 {
		fmt.Fprintln(w)
	}
	for _, m := range t.Missing {
		fmt.Fprintln(w, m)
	}
}
