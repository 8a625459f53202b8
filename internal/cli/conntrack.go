package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

func newConntrack() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conntrack",
		Short: "List, count, watch, delete and size the connection table",
		Long: `Reads the kernel's connection table, whichever firewall tracks connections. Addresses and
ports are those of the first packet of a connection. The table is read as a stream and never
held whole: counting a million entries takes little memory.

Through an agent, its readers may list, count and watch; deleting and tuning need the right to
change the firewall.

Exit status: 0 done; 2 bad use, nothing tracks connections, or it could not be read.`,
		Example: "  sluice conntrack count --by source\n  sluice conntrack list --port 443 --state time-wait\n  sluice conntrack delete --src 203.0.113.7",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConntrackList(), newConntrackCount(), newConntrackWatch(), newConntrackDelete(), newConntrackTune())
	return cmd
}

// addChoice adds the flags of a choice of entries.
func addChoice(flags *pflag.FlagSet, c *engine.EntryChoice) {
	flags.StringVar(&c.Source, "src", "", "select connections from an `ADDRESS`, prefix or range")
	flags.StringVar(&c.Destination, "dst", "", "select connections to an `ADDRESS`, prefix or range")
	flags.StringVar(&c.Protocol, "protocol", "", "select a `PROTOCOL`, such as tcp or 47")
	flags.Uint16Var(&c.Port, "port", 0, "select connections to a `PORT`")
	flags.StringVar(&c.State, "state", "", "select a TCP `STATE`, such as time-wait; for other protocols answered or unanswered")
	flags.IntVar(&c.Family, "family", 0, "select an address `FAMILY`, 4 or 6")
	flags.BoolVar(&c.NAT, "nat", false, "select connections whose source or destination is rewritten")
}

func newConntrackList() *cobra.Command {
	var q engine.EntryQuestion
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List entries of the connection table",
		Long: `Lists entries, one a line: protocol and state, source and destination, how they are
rewritten, and in how many seconds the entry expires if no packet comes.

Exit status: 0 listed; 2 bad use, nothing tracks connections, or it could not be read.`,
		Example: "  sluice conntrack list --src 203.0.113.0/24\n  sluice conntrack list --nat --most 20 --json",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			out, err := h.Entries(ctx, q)
			if err != nil {
				return err
			}
			return answer(cmd, out, false, func(w io.Writer) { printEntries(w, out) })
		}),
	}
	addChoice(cmd.Flags(), &q.EntryChoice)
	cmd.Flags().IntVar(&q.Most, "most", 0, "list at most `N` entries, 1,000 by default")
	return cmd
}

func newConntrackCount() *cobra.Command {
	var q engine.EntryQuestion
	cmd := &cobra.Command{
		Use:   "count",
		Short: "Count entries of the connection table by fields",
		Long: `Counts entries by one or more fields, the largest count first. The fields are:
` + english.Wrapped(strings.Join(engine.EntryFields(), ", ")) + `.
A network is the /24 or /48 of an address. Packets and bytes are 0 unless the kernel counts
them (net.netfilter.nf_conntrack_acct).

Exit status: 0 counted; 2 bad use, nothing tracks connections, or it could not be read.`,
		Example: "  sluice conntrack count\n  sluice conntrack count --by source-network --port 443\n  sluice conntrack count --by protocol,state --json",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			collectAt(countedGarbage)
			out, err := h.Entries(ctx, q)
			if err != nil {
				return err
			}
			return answer(cmd, out, false, func(w io.Writer) { printCounts(w, q.By, out) })
		}),
	}
	addChoice(cmd.Flags(), &q.EntryChoice)
	cmd.Flags().StringSliceVar(&q.By, "by", []string{"protocol", "state"}, "count by `FIELD`s, separated by commas")
	cmd.Flags().IntVar(&q.Most, "most", usualCounts, "print the first `N` counts")
	command.Must(cmd.RegisterFlagCompletionFunc("by", command.Words(engine.EntryFields()...)))
	return cmd
}

const (
	usualCounts = 20
	// countedGarbage keeps a count of 250,000 sources below 50 MiB.
	countedGarbage = 40
)

func newConntrackDelete() *cobra.Command {
	var c engine.EntryChoice
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete entries of the connection table",
		Long: `Deletes entries: rules evaluate the next packet of each connection as if it began one, and
may drop it. Connections through NAT break. You need not do this after a ban: Sluice deletes
the entries of what it ends.

Exit status: 0 deleted, or none matched; 2 bad use, nothing tracks connections, or it failed.`,
		Example: "  sluice conntrack delete --src 203.0.113.7\n  sluice conntrack delete --all",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			if (c == engine.EntryChoice{}) != given(cmd, "all") {
				return errors.New("which entries?\nhint: select some, such as --src 203.0.113.7, or give --all alone")
			}
			out, err := h.DeleteEntries(ctx, c)
			if err != nil {
				return err
			}
			return answer(cmd, out, false, func(w io.Writer) { fmt.Fprintf(w, "deleted %s\n", entriesText(out.Deleted)) })
		}),
	}
	addChoice(cmd.Flags(), &c)
	cmd.Flags().Bool("all", false, "delete all entries")
	return cmd
}

func entriesText(n int) string {
	return english.Grouped(n) + map[bool]string{true: " entry", false: " entries"}[n == 1]
}

func printEntries(w io.Writer, a *engine.EntryAnswer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range a.List {
		name, who := entryText(&e)
		fmt.Fprintf(table, "%s\t%s\t%d s\t%s\n", name, who, e.Seconds, strings.Join(e.Status, ", "))
	}
	_ = table.Flush()
	printMatched(w, a, "listed")
}

// entryText is what an entry is, and who began the connection with whom.
func entryText(e *engine.TableEntry) (name, who string) {
	name = e.Protocol
	if e.State != "" {
		name += " " + e.State
	}
	who = sideText(e.Source) + " -> " + sideText(e.To)
	if e.ReplySource != e.To {
		who += ", to " + sideText(e.ReplySource)
	}
	if e.ReplyTo != e.Source {
		who += ", as " + sideText(e.ReplyTo)
	}
	return name, who
}

// sideText leaves out the port where a protocol has none.
func sideText(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

func printCounts(w io.Writer, by []string, a *engine.EntryAnswer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	counted := false
	for _, c := range a.Counts {
		counted = counted || c.Packets > 0
	}
	head := "entries\t"
	if counted {
		head += "packets\tbytes\t"
	}
	fmt.Fprintln(table, head+strings.Join(by, "\t"))
	for _, c := range a.Counts {
		fmt.Fprintf(table, "%s\t", english.Grouped(c.Entries))
		if counted {
			fmt.Fprintf(table, "%s\t%s\t", english.Grouped(c.Packets), english.Grouped(c.Bytes))
		}
		fmt.Fprintln(table, strings.Join(c.Values, "\t"))
	}
	_ = table.Flush()
	printMatched(w, a, "shown")
}

func printMatched(w io.Writer, a *engine.EntryAnswer, shown string) {
	fmt.Fprintf(w, "%s of %s", english.Grouped(a.Matched), entriesText(a.Entries))
	if a.Others > 0 {
		fmt.Fprintf(w, ", %s more are not %s", english.Grouped(a.Others), shown)
	}
	fmt.Fprintf(w, ", in %s\n", english.Duration(a.Took.Round(time.Millisecond)))
}
