package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newBans() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bans",
		Short: "List bans by command, by limits and by the fleet",
		Long: `Lists the bans made by command, by a limit of the policy ("then ban"; it names the limit if
the policy has only one) and by the host's fleet ("via fleet"), sorted by address: how long
each holds, how many packets it has dropped since rules were first loaded, who made it, when
and why. Packets are counted by address; overlapping prefixes both count the hits of either.
For a prefix that a limit banned ("widen") it shows how many of its sources were banned before.
A limit's ban does not apply to exempt addresses: never-ban, who is logged in over ssh, the
routers of the default routes and the name servers. Bans written in the policy are not
listed: "sluice status" counts them.

--past lists the bans by command that ended within the last 30 days, the latest first and at
most 10,000: when, and, if somebody lifted it, who and why.
` + filesHelp + `

Exit status: 0 listed, 2 bad use, or it could not be read.`,
		Example: "  sluice bans\n  sluice bans --past | grep 203.0.113.7\n  sluice bans --json | jq -r '.[] | select(.packets == 0) | .what' | sluice unban -",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			if given(cmd, "past") {
				return listPast(cmd, h)
			}
			list, err := h.Bans(ctx)
			if err != nil {
				return err
			}
			if optionsOf(cmd).json {
				return command.PrintJSON(cmd.OutOrStdout(), list)
			}
			return printBans(cmd.OutOrStdout(), list, time.Now())
		}),
	}
	cmd.Flags().Bool("past", false, "list bans that ended")
	return cmd
}

func listPast(cmd *cobra.Command, h door) error {
	list, err := h.PastBans()
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if optionsOf(cmd).json {
		return command.PrintJSON(w, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(w, "no ban by command has ended")
		return nil
	}
	buffered := bufio.NewWriter(w)
	table := tabwriter.NewWriter(buffered, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "address\tended\thow\tby\tsince\treason")
	for _, p := range list {
		how := "expired"
		if p.Lifted {
			how = "lifted" + by(p.Lifter)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", p.What, p.Ended.Local().Format(time.DateTime), how, whoText(p.Author), p.Since.Local().Format(time.DateTime), p.Reason)
	}
	return errors.Join(table.Flush(), buffered.Flush())
}

func printBans(w io.Writer, list []apply.BanEntry, now time.Time) error {
	if len(list) == 0 {
		fmt.Fprintln(w, "no bans by command or by a limit")
		return nil
	}
	buffered := bufio.NewWriter(w)
	table := tabwriter.NewWriter(buffered, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "address\tuntil\thits\tby\tsince\treason")
	for _, b := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", whatText(b), command.Until(b.Until, now), hitsText(b), bannedBy(b), sinceText(b), b.Reason)
	}
	return errors.Join(table.Flush(), buffered.Flush())
}

// whatText is what is banned; of a prefix that a limit banned, for how many; of a country,
// by how many ranges and which data.
func whatText(b apply.BanEntry) string {
	switch {
	case b.Widened > 0:
		return fmt.Sprintf("%s (%d sources of it)", b.What, b.Widened)
	case b.Ranges == 0:
		return b.What
	}
	text := b.What + " (" + english.Plural(b.Ranges, "range")
	if !b.Data.IsZero() {
		text += " of " + b.Data.Format(time.DateOnly)
	}
	return text + ")"
}

func hitsText(b apply.BanEntry) string {
	switch {
	case !b.InForce && len(b.Exempt) > 0:
		return "exempt"
	case !b.InForce:
		return "not in force"
	case len(b.Exempt) > 0:
		return fmt.Sprintf("%d (%s exempt)", b.Packets, strings.Join(b.Exempt, ", "))
	}
	return fmt.Sprint(b.Packets)
}

func bannedBy(b apply.BanEntry) string {
	switch {
	case b.By != apply.ByLimit:
		return whoText(b.Author)
	case b.Before:
		return "a limit of an earlier policy"
	case b.Rule == "":
		return "a limit"
	}
	return "limit of " + b.Rule
}

func sinceText(b apply.BanEntry) string {
	if b.Since.IsZero() {
		return "-"
	}
	return b.Since.Local().Format(time.DateTime)
}
