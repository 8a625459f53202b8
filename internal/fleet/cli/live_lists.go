package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

func newLists() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lists",
		Short: "Show the state of the live lists, and on how many hosts each is proved",
		Long: `Shows the live lists of the policies that hosts should run: how old each is, whether its
server gives a valid list, and on how many of its hosts the kernel is proved to hold it. A
host that refuses a list is named, with the reason: the connections it would cut.

Exit status: 0 all are fine and proved on each host, 1 one fails, or is not proved on a host,
2 bad use, or no controller answers.`,
		Example: "  sluice-controller lists\n  sluice-controller lists --json | jq '.lists[] | select(.failure)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := controllerOf(cmd).Lists(cmd.Context())
			if err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				if err := command.PrintJSON(cmd.OutOrStdout(), found); err != nil {
					return err
				}
			} else {
				printLists(cmd.OutOrStdout(), found.Lists, time.Now())
			}
			for _, l := range found.Lists {
				if l.Failure != "" || l.Proved < l.Hosts {
					return command.ErrFound
				}
			}
			return nil
		},
	}
	addController(cmd)
	cmd.AddCommand(newListsPlan(), newListsRefresh(), newListsUndo())
	return cmd
}

func newListsRefresh() *cobra.Command {
	var how api.ListRefresh
	cmd := &cobra.Command{
		Use:   "refresh SET",
		Short: "Download a live list now",
		Long: `Downloads the live list of a set now, and sends hosts what is new in it. It is refused if it is not
a list, if its size is implausible (see "sluice refresh --help"), or if it bans an address
of a controller, of a host of the fleet, or of a router or name server of one; hosts then stay
as they are.

After "lists undo" this resumes the downloads.

Exit status: 0 the list is what the server has, 2 it was refused, bad use, or no controller
answers.`,
		Example: "  sluice-controller lists refresh scanners\n  sluice-controller lists refresh scanners --allow-cut",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := controllerOf(cmd).RefreshList(cmd.Context(), args[0], how)
			return changedList(cmd, l, err)
		},
	}
	addController(cmd)
	cmd.Flags().BoolVar(&how.Force, "force", false, "take it whatever its size")
	cmd.Flags().BoolVar(&how.AllowCut, "allow-cut", false, "take it even if it bans addresses that the fleet needs, or hosts would cut live connections")
	return cmd
}

func newListsPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan SET",
		Short: "Show what a refresh would change, and which connections it would cut",
		Long: `Downloads the live list of a set now, and changes nothing. It shows which prefixes come and
go and whether a refresh would take the list. Each host whose policy has the list reports which
live connections would end or not be allowed again, and who is logged in over ssh and would be
locked out. Hosts that are offline or do not share this are named.

Exit status: 0 a refresh would take it and cut nobody, 1 it would be refused or cut somebody,
or not all hosts have answered, 2 bad use, the list cannot be downloaded, or no controller
answers.`,
		Example: "  sluice-controller lists plan scanners\n  sluice-controller lists plan scanners --json | jq '.planned[].host'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := controllerOf(cmd).PlanList(cmd.Context(), args[0])
			if err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				err = command.PrintJSON(cmd.OutOrStdout(), p)
			} else {
				printListPlan(cmd.OutOrStdout(), p)
			}
			if err == nil && (p.Refused != "" || len(p.Bans) > 0 || p.Concerned > 0 || !p.Unchanged && p.Answered < p.Hosts) {
				err = command.ErrFound
			}
			return err
		},
	}
	addController(cmd)
	return cmd
}

func printListPlan(w io.Writer, p *api.ListPlan) {
	if p.Unchanged {
		fmt.Fprintf(w, "%s: its server has nothing new\n", p.Set)
		return
	}
	fmt.Fprintf(w, "%s: %s, %d before: %d come, %d go\n", p.Set, english.Plural(p.After, "prefix"), p.Before, p.Come, p.Go)
	for _, of := range []struct {
		sign string
		n    int
		some []string
	}{{"+", p.Come, p.SomeCome}, {"-", p.Go, p.SomeGo}} {
		shown := of.some[:min(len(of.some), shownPrefixes)]
		for _, prefix := range shown {
			fmt.Fprintf(w, "  %s %s\n", of.sign, prefix)
		}
		if more := of.n - len(shown); more > 0 {
			fmt.Fprintf(w, "  %s and %d more\n", of.sign, more)
		}
	}
	if p.LeftOut > 0 {
		fmt.Fprintf(w, "%s outside of what the set may hold left out\n", english.Plural(p.LeftOut, "range"))
	}
	if p.Refused != "" {
		fmt.Fprintf(w, "refused: %s\n", command.PlainName(p.Refused))
	}
	for _, whom := range p.Bans {
		fmt.Fprintf(w, "refused: it would cut %s\n", command.PlainName(whom))
	}
	for _, s := range p.Sets {
		fmt.Fprintf(w, "set %s changes on %s\n", command.PlainName(s.Name), english.Plural(s.Hosts, "host"))
	}
	for _, h := range p.Planned {
		if h.Error != "" {
			fmt.Fprintf(w, "%s does not report whom it would cut: %s\n", h.Host, command.PlainName(h.Error))
			continue
		}
		fmt.Fprintf(w, "%s: %s would end, %d not be allowed again\n", h.Host, english.Plural(h.Ends, "live connection"), h.Refused)
		for _, f := range h.Flows {
			what := "ends"
			if !f.Cut {
				what = "is not allowed again, by " + f.By
			}
			fmt.Fprintf(w, "  %s\n", command.PlainName(fmt.Sprintf("%s %s to %s %s", f.Protocol, f.From, f.To, what)))
		}
		if h.LockedOut != "" {
			fmt.Fprintf(w, "  %s is logged in over ssh and would be locked out\n", command.PlainName(h.LockedOut))
		}
	}
	if p.Unasked != "" {
		fmt.Fprintf(w, "whom it would cut is unknown: %s\n", p.Unasked)
	} else {
		fmt.Fprintf(w, "%d of %s answered, %d would cut somebody\n", p.Answered, english.Plural(p.Hosts, "host"), p.Concerned)
	}
}

// shownPrefixes is how many prefixes that come, and that go, are printed.
const shownPrefixes = 10

func newListsUndo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undo SET",
		Short: "Go back to the previous contents of a live list",
		Long: `Sends hosts what the live list of a set held before its last change. It is not downloaded
again until "lists refresh". A second undo reverts the first.

Exit status: 0 fine, 2 nothing to go back to, bad use, or no controller answers.`,
		Example: "  sluice-controller lists undo scanners",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := controllerOf(cmd).UndoList(cmd.Context(), args[0])
			return changedList(cmd, l, err)
		},
	}
	addController(cmd)
	return cmd
}

func changedList(cmd *cobra.Command, l *api.LiveListState, err error) error {
	if err != nil {
		err = hinted(err)
		switch {
		case strings.Contains(err.Error(), "it would cut "):
			err = fmt.Errorf("%w\nhint: --allow-cut takes it anyway", err)
		case strings.Contains(err.Error(), "so the copy stays"):
			err = fmt.Errorf("%w\nhint: --force takes it whatever its size", err)
		}
		return err
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), l)
	}
	printLists(cmd.OutOrStdout(), []api.LiveListState{*l}, time.Now())
	return nil
}

func printLists(w io.Writer, all []api.LiveListState, now time.Time) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no policy that hosts should run has a live list")
		return
	}
	age := func(at time.Time) string {
		if at.IsZero() {
			return "-"
		}
		return english.Span(now.Sub(at))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range all {
		state := command.Paint(w, "32", "fine")
		switch {
		case l.Failure != "":
			state = command.Paint(w, "31", "fails") + " for " + age(l.Failing)
		case l.Undone:
			state = command.Paint(w, "33", "undone")
		case l.Sha256 == "":
			state = "as it was signed"
		}
		what := "-"
		if l.Sha256 != "" {
			what = fmt.Sprintf("%s, changed %s ago", english.Plural(l.Prefixes, "prefix"), age(l.Changed))
		}
		checked := "never checked"
		if !l.Checked.IsZero() {
			checked = "checked " + age(l.Checked) + " ago"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\tproved on %d of %s\n", l.Set, state, what, checked, l.Proved, english.Plural(l.Hosts, "host"))
	}
	_ = table.Flush()
	for _, l := range all {
		if l.Failure != "" {
			fmt.Fprintf(w, "%s: %s\n", l.Set, command.PlainName(l.Failure))
		}
		if l.LeftOut > 0 {
			fmt.Fprintf(w, "%s: %s outside of what the set may hold left out\n", l.Set, english.Plural(l.LeftOut, "range"))
		}
		for _, r := range l.Refused {
			fmt.Fprintf(w, "%s: %s does not take it: %s\n", l.Set, r.Host, command.PlainName(r.Why))
		}
	}
}
