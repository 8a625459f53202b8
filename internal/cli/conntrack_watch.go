package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

func newConntrackWatch() *cobra.Command {
	var q engine.EntryWatch
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show changes of the connection table as they happen",
		Long: `Shows entries as they are made, change and end, one a line, until interrupted. An update is a
new state, mark or status; a packet alone is none. TCP events show the state if it changed,
and --state shows only those. Events that could not be read in time are counted and reported.
With --json each line is one event.

Since Linux 5.19 entries made while nobody listened have no events, unless
net.netfilter.nf_conntrack_events is 1.

Exit status: 0 shown, or stopped; 2 bad use, nothing tracks connections, or it could not be
read.`,
		Example: "  sluice conntrack watch --dst 198.51.100.1 --port 443\n  sluice conntrack watch --event new --for 10s --json",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			collectSoon()
			q.Seconds = command.TimeOf(cmd.Flags(), "for").Seconds()
			return showEvents(ctx, cmd, h, q)
		}),
	}
	flags := cmd.Flags()
	addChoice(flags, &q.EntryChoice)
	flags.StringSliceVar(&q.Events, "event", nil, "show `EVENT`s of these kinds, separated by commas: "+english.List(engine.EntryEvents()))
	flags.Uint64Var(&q.Most, "count", 0, "end after `N` events; 0 is never")
	command.AddTime(flags, "for", 0, "end after `TIME`; 0 is never")
	command.Must(cmd.RegisterFlagCompletionFunc("event", command.Words(engine.EntryEvents()...)))
	return cmd
}

func showEvents(ctx context.Context, cmd *cobra.Command, h door, q engine.EntryWatch) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	to := cmd.OutOrStdout()
	show := func(e engine.WatchedEntry) error { return printEvent(to, e) }
	if optionsOf(cmd).json {
		encoder := json.NewEncoder(to)
		encoder.SetEscapeHTML(false)
		show = func(e engine.WatchedEntry) error { return encoder.Encode(e) }
	}
	var failed error
	out, err := h.WatchEntries(ctx, q, func(e engine.WatchedEntry) {
		if failed != nil {
			return
		}
		if failed = show(e); failed != nil {
			stop()
		}
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it was stopped
	}
	if err == nil && failed == nil && out != nil && out.Missed > 0 {
		note(cmd, fmt.Sprintf("%s could not be read in time; --event new asks the kernel for fewer", english.Plural(out.Missed, "event")))
	}
	return errors.Join(err, failed)
}

func printEvent(w io.Writer, e engine.WatchedEntry) error {
	at := e.Time.Local().Format("15:04:05.000")
	if e.TableEntry == nil {
		_, err := fmt.Fprintf(w, "%s  missed   %s\n", at, english.Plural(uint64(e.Missed), "event"))
		return err
	}
	name, who := entryText(e.TableEntry)
	text := fmt.Sprintf("%s  %-7s  %-17s  %s", at, e.Event, name, who)
	if e.Seconds > 0 {
		text += fmt.Sprintf("  %d s", e.Seconds)
	}
	if e.Packets > 0 {
		text += fmt.Sprintf("  %s, %s", english.Plural(e.Packets, "packet"), english.Plural(e.Bytes, "byte"))
	}
	if len(e.Status) > 0 {
		text += "  " + strings.Join(e.Status, ", ")
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
