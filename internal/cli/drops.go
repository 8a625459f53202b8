package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/words"
)

func newDrops() *cobra.Command {
	var (
		count int
		asked engine.DropChoice
	)
	cmd := &cobra.Command{
		Use:   "drops",
		Short: "Show packets as the kernel drops them, why, and by which rule",
		Long: `Shows the packets that the kernel drops in this network namespace, for whichever tool: one a
line with the time, the kernel's reason, the netfilter hook or else the kernel function,
source, destination, and, where the policy logs to netlink (log: netlink), the line of the
policy that dropped it. On a terminal it is a screen redrawn every second: counts by reason
and function, the most frequent sources and lines, and the last packets. It ends with --for,
--count or Ctrl-C, and then prints the totals. --json prints a value a line: the packets, and
at the end the counts.

All packets are counted, in the kernel; at most 200 a second are examined, half of them for
one function and reason, so that a flood hides nothing else and costs little. The cost as the
kernel measures it is shown. --src and --interface choose among the packets examined.

--trace names the rule that dropped a packet, of any tool: for nftables and iptables-nft from
the kernel's own trace, for legacy iptables deduced from its rules. For that, table inet
sluice_trace is in the ruleset meanwhile, and makes the kernel trace 100 packets a second that
arrive and 100 that this host sends. It asks on a terminal; elsewhere it needs --yes. The table
disappears with the command, even if that is killed.

On a kernel without BTF only functions and reasons are counted, for the whole machine. Without
root only the counters of /proc/net are shown.

Exit status: 0 shown, or stopped; 1 answered no; 2 bad use, or it could not be read.`,
		Example: "  sluice drops\n  sluice drops --for 10s --json | jq .reason\n  sluice drops --src 203.0.113.0/24 --count 1\n  sluice drops --reason no_socket --interface eth0\n  sluice drops --trace",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 0 {
				return fmt.Errorf("--count %d is negative", count)
			}
			return onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
				asked.Seconds = command.TimeOf(cmd.Flags(), "for").Seconds()
				if asked.Trace {
					if err := agreed(cmd, "add a table to the ruleset that traces 200 packets a second while this runs?", "--trace adds a table to the ruleset while the command runs"); err != nil {
						return err
					}
				}
				return showDrops(ctx, cmd, h, asked, count)
			})(cmd, args)
		},
	}
	asked.Called = words.DropFlags
	flags := cmd.Flags()
	command.AddTime(flags, "for", 0, "end after `TIME`")
	flags.IntVar(&count, "count", 0, "end after `N` packets; 0 means never")
	flags.StringVar(&asked.Reason, "reason", "", "show drops for a kernel `REASON`, such as no_socket")
	flags.StringVar(&asked.Function, "function", "", "show drops by a kernel `FUNCTION`, such as tcp_v4_rcv")
	flags.StringVar(&asked.Source, "src", "", "show packets from an `ADDRESS`, prefix or range")
	flags.StringVar(&asked.Interface, "interface", "", "show packets that came in, or would go out, by an `INTERFACE`")
	flags.BoolVar(&asked.Trace, "trace", false, "name the rule, of any tool, that dropped a packet; adds a table meanwhile")
	flags.Bool("yes", false, "do not ask")
	return cmd
}

func showDrops(ctx context.Context, cmd *cobra.Command, h door, asked engine.DropChoice, most int) error {
	collectSoon()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	v := dropView{to: cmd.OutOrStdout(), most: most, stop: stop, screen: command.Colours(cmd.OutOrStdout()) && !optionsOf(cmd).json}
	if optionsOf(cmd).json {
		v.encoder = json.NewEncoder(v.to)
		v.encoder.SetEscapeHTML(false)
	}
	counts, err := h.Drops(ctx, asked, v.packet, v.counted)
	if err = cmp.Or(v.failed, err); err != nil {
		return err
	}
	if v.encoder != nil {
		return v.encoder.Encode(counts)
	}
	if v.screen {
		v.counted(*counts)
		return v.failed
	}
	printDrops(v.to, counts)
	return nil
}

// dropView shows drops as they come: values, lines, or a screen.
type dropView struct {
	to      io.Writer
	encoder *json.Encoder // nil: for people
	screen  bool
	most    int
	shown   int
	last    []string // lines of packets
	stop    func()
	failed  error // of writing
}

func (v *dropView) packet(d engine.Dropped) {
	if v.failed != nil || v.most > 0 && v.shown == v.most {
		return
	}
	switch {
	case v.encoder != nil:
		v.failed = v.encoder.Encode(d)
	case v.screen:
		v.last = append(v.last[max(0, len(v.last)-screenRows):], dropLine(v.to, d))
	default:
		_, v.failed = fmt.Fprintln(v.to, dropLine(v.to, d))
	}
	if v.shown++; v.shown == v.most || v.failed != nil {
		v.stop()
	}
}

func (v *dropView) counted(c engine.DropCounts) {
	if !v.screen {
		return
	}
	held := &command.Held{To: v.to}
	printDrops(held, &c)
	text := firstRows(held.String(), screenRows)
	if left := screenRows - rowsOf(text) - 1; left > 0 && len(v.last) > 0 {
		text += "\n" + strings.Join(v.last[max(0, len(v.last)-left):], "\n") + "\n"
	}
	fmt.Fprint(command.Bare(v.to), clearScreen)
	if _, v.failed = fmt.Fprint(v.to, text); v.failed != nil {
		v.stop()
	}
}

// dropLine is a packet.
func dropLine(w io.Writer, d engine.Dropped) string {
	var rest []string
	source := "-"
	if d.Source.IsValid() {
		source = d.Source.String()
	}
	if d.Rule != "" || d.Line > 0 {
		rest = append(rest, loggedLine(d.Logged), inSets(d.Logged)+d.Rule)
	} else if d.Destination.IsValid() {
		rest = append(rest, "to "+d.Destination.String())
	}
	if d.By != nil {
		rest = append(rest, byRule(d.By))
	}
	for _, by := range []struct{ way, name string }{{"in", d.In}, {"out", d.Out}} {
		if by.name != "" {
			rest = append(rest, by.way+" "+by.name)
		}
	}
	text := fmt.Sprintf("%s  %-14s  %-15s  %-15s  %-9s  %s", d.Time.Local().Format(time.TimeOnly), cmp.Or(d.Reason, "-"), cmp.Or(d.Hook, d.Function), source, cmp.Or(d.Service(), "-"), strings.Join(rest, "  "))
	return fitting(w, command.PlainName(text))
}

// byRule is a rule that dropped a packet.
func byRule(r *engine.DropRule) string {
	text := fmt.Sprintf("%s, %s: %s", r.Tool, r.Place(), r.Rule)
	switch {
	case r.Unsure:
		text = "deduced, not certain: " + text
	case r.Deduced:
		text = "deduced: " + text
	}
	return text
}

// dropRows are how many places, sources and lines are printed each.
const dropRows = 5

func printDrops(w io.Writer, c *engine.DropCounts) {
	fmt.Fprintf(w, "%s dropped in %s", english.Plural(c.Packets, "packet"), english.Duration(time.Duration(c.Seconds*float64(time.Second)).Round(100*time.Millisecond)))
	if c.By == engine.ByTracepoint {
		fmt.Fprintf(w, ", %s examined", english.Grouped(c.Looked))
	}
	fmt.Fprintln(w)
	row := func(n uint64, text string) {
		fmt.Fprintln(w, fitting(w, command.PlainName(fmt.Sprintf("%12s  %s", english.Grouped(n), text))))
	}
	for _, p := range c.Places[:min(len(c.Places), 2*dropRows)] {
		row(p.Packets, strings.TrimRight(fmt.Sprintf("%-22s  %s", cmp.Or(p.Reason, "-"), p.Function), " "))
	}
	if more := len(c.Places) - 2*dropRows; more > 0 {
		fmt.Fprintf(w, "              and %s more\n", english.Plural(more, "place"))
	}
	part := func(name string, rows []string, looked []uint64) {
		if len(rows) > 0 {
			fmt.Fprintln(w, command.Paint(w, "2", name+", of those examined"))
		}
		for i := range rows[:min(len(rows), dropRows)] {
			row(looked[i], rows[i])
		}
	}
	var rows []string
	var looked []uint64
	for _, s := range c.Sources {
		rows, looked = append(rows, s.Source.String()), append(looked, s.Looked)
	}
	part("sources", rows, looked)
	rows, looked = nil, nil
	for _, l := range c.Lines {
		rows, looked = append(rows, loggedLine(engine.Logged{File: l.File, Line: l.Line})+"  "+l.Rule), append(looked, l.Looked)
	}
	part("lines of the policy", rows, looked)
	if c.Traced != nil && len(c.Rules) > 0 {
		fmt.Fprintln(w, command.Paint(w, "2", "rules, of "+english.Plural(c.Traced.Followed, "packet")+" traced"))
		for _, r := range c.Rules[:min(len(c.Rules), 2*dropRows)] {
			row(r.Packets, byRule(&r.DropRule))
		}
	}
	var also []string
	if c.Unplaced > 0 {
		also = append(also, english.Grouped(c.Unplaced)+" on the machine name no network namespace")
	}
	if c.Reckoned > 0 {
		also = append(also, english.Grouped(c.Reckoned)+" are reckoned: a flood is watched a fifth of the time")
	}
	if c.Traced != nil && c.Traced.Lost > 0 {
		also = append(also, english.Grouped(c.Traced.Lost)+" traced in vain, since the kernel told more of them than could be read")
	}
	if c.Missed > 0 {
		also = append(also, english.Grouped(c.Missed)+" could not be counted")
	}
	if c.Cost != nil {
		also = append(also, fmt.Sprintf("to see that takes %.2g %% of a processor, %s ns a packet", 100*c.Cost.Share, english.Grouped(int(c.Cost.Event))))
	}
	if len(also) > 0 {
		fmt.Fprintln(w, strings.Join(also, "; "))
	}
}
