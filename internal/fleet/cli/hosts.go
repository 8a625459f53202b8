package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

func newHosts() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hosts [SELECTOR]",
		Short: "Show which policy is proved on each host, and why one is not",
		Long: `Lists the hosts of the fleet, or those whose labels a selector matches: the bundle that
each runs and the one that it should run, and since when. A host is

  proved    its kernel does what that bundle says, for every packet, and it is connected;
            with a reason where it cannot take anything new
  drift     it did, until somebody changed the rules; where possible, the packets that this affects
  refused   it did not take the bundle, or took it back
  stale     it is on the way to the bundle
  restored  the database is an older copy, and a new incarnation is not signed yet
            (sign --restore): it takes nothing until then
  offline   it is not connected, and keeps what it runs
  none      no roll-out has reached it
  claimed   two hosts claim its name

Exit status: 0 all of them are proved, 1 some are not, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller hosts\n  sluice-controller hosts 'role=web and env=prod'\n  sluice-controller hosts --json | jq '.hosts[] | select(.state == \"drift\")'",
		Args:    cobra.MaximumNArgs(1),
		RunE:    listHosts,
	}
	addController(cmd)
	return cmd
}

func listHosts(cmd *cobra.Command, args []string) error {
	only := ""
	if len(args) > 0 {
		s, err := selector.Parse(args[0])
		if err != nil {
			return err
		}
		only = s.String()
	}
	found, err := controllerOf(cmd).Hosts(cmd.Context(), only)
	if err != nil {
		return hinted(err)
	}
	if command.JSON(cmd) {
		if err := command.PrintJSON(cmd.OutOrStdout(), found); err != nil {
			return err
		}
	} else {
		printHosts(cmd.OutOrStdout(), found, time.Now())
	}
	if found.Database != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the controller's database does not answer, this is what was known last: %s\n", found.Database)
	}
	if found.Proved < len(found.Hosts) {
		return command.ErrFound
	}
	return nil
}

// colours are those of states.
var colours = map[api.HostState]string{api.Proved: "32", api.Drift: "31", api.Refused: "31", api.Claimed: "31", api.Stale: "33", api.Restored: "33", api.Offline: "33", api.None: "33"}

// mostInRow is how many bytes of a reason are next to what else is said of a host: a
// terminal of 80 columns shows the row whole.
const mostInRow = 44

func printHosts(w io.Writer, found *api.Hosts, now time.Time) {
	if len(found.Hosts) == 0 {
		fmt.Fprintln(w, "no host")
		return
	}
	var rows bytes.Buffer
	table := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	beneath := make([][]string, len(found.Hosts)) // reasons that are too long for a row
	for i, h := range found.Hosts {
		bundle := "no bundle"
		if h.Running != 0 {
			bundle = fmt.Sprintf("bundle %d", h.Running)
		}
		if h.Desired != h.Running && h.Desired != 0 {
			bundle += fmt.Sprintf(" → %d", h.Desired)
		}
		since := ""
		if !h.Since.IsZero() {
			since = "for " + english.Span(now.Sub(h.Since))
		}
		reason := command.PlainName(h.Reason)
		if len(reason) > mostInRow {
			reason, beneath[i] = "", strings.Split(h.Reason, "\n")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", h.Host, command.Paint(w, colours[h.State], string(h.State)), bundle, since, reason)
	}
	_ = table.Flush()
	for i, row := range strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n") {
		fmt.Fprintln(w, strings.TrimRight(row, " "))
		for _, line := range beneath[i] {
			fmt.Fprintf(w, "    %s\n", command.PlainName(line))
		}
	}
	fmt.Fprintf(w, "%d of %s proved\n", found.Proved, english.Plural(len(found.Hosts), "host"))
}
