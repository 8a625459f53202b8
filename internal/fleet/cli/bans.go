package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/bans"
)

func newUnban() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unban [ADDRESS|PREFIX|RANGE|-]...",
		Short: "Lift bans of the fleet",
		Long: `Lifts the bans of the fleet that lie within addresses, prefixes and ranges;
"sluice-controller unban 0.0.0.0/0 ::/0" lifts all. --hosts lifts only those made for this
selector. A host's own bans stay. With --wait the command ends when every online host has read
its kernel back without them. Arguments and standard input are read as by "ban".

Exit status: 0 lifted, with --wait on each online host; 1 some or all were not banned (the rest
is lifted), or a host has not lifted them; 2 bad use, or it failed.`,
		Example: "  sluice-controller unban 203.0.113.7 -m 'it was us'\n  sluice-controller unban 0.0.0.0/0 ::/0 --hosts role=web",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := command.BanInput(cmd, args)
			if err != nil {
				return err
			}
			in := api.Lift{}
			for _, n := range list {
				in.What = append(in.What, n.Name())
			}
			return lifting(cmd, "ban", in, (*api.Client).Unban)
		},
	}
	addLifting(cmd)
	return cmd
}

func newDisallow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disallow ADDRESS|PREFIX|RANGE [SERVICE]",
		Short: "Lift what \"allow\" let in",
		Long: `Lifts the allows of the fleet that lie within an address, a prefix or a range: those for
SERVICE, or without SERVICE all. Connections that they admitted continue.

Exit status: 0 lifted, with --wait on each online host; 1 there was none, or a host has not
lifted it; 2 bad use, or it failed.`,
		Example: "  sluice-controller disallow 203.0.113.7 ssh",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := api.Lift{What: args[:1]}
			if len(args) > 1 {
				in.Service = args[1]
			}
			return lifting(cmd, "exception", in, (*api.Client).Disallow)
		},
	}
	addLifting(cmd)
	return cmd
}

func addLifting(cmd *cobra.Command) {
	addController(cmd)
	cmd.Flags().StringP("message", "m", "", "the `REASON`, for the audit")
	cmd.Flags().String("hosts", "", "only what was made for exactly this `SELECTOR`")
	cmd.Flags().Bool("wait", false, "wait until each online host has lifted it in its kernel")
}

// liftedJSON is what unban and disallow print with --json.
type liftedJSON struct {
	api.Lifted
	Hosts []api.HostStanding `json:"hosts,omitempty"` // with --wait
}

// lifting has it lifted, and says what came of it.
func lifting(cmd *cobra.Command, noun string, in api.Lift, lift func(*api.Client, context.Context, api.Lift) (*api.Lifted, error)) error {
	in.Hosts, _ = cmd.Flags().GetString("hosts")
	reason, _ := cmd.Flags().GetString("message")
	in.Reason = bans.Reason(reason)
	c := controllerOf(cmd)
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	var wait []error // a request of each part
	out := liftedJSON{Lifted: api.Lifted{Lifted: []api.Holding{}}}
	for some := range slices.Chunk(in.What, holdsAtOnce) {
		part := in
		part.What = some
		made, err := lift(c, ctx, part)
		if is := (*api.WaitingError)(nil); errors.As(err, &is) {
			wait = append(wait, err)
			continue
		}
		if err != nil {
			return hinted(err)
		}
		out.Seq = max(out.Seq, made.Seq)
		out.Lifted.Lifted, out.NotThere = append(out.Lifted.Lifted, made.Lifted...), append(out.NotThere, made.NotThere...)
	}
	if len(wait) > 0 {
		return waiting(errors.Join(wait...))
	}
	if waits, _ := cmd.Flags().GetBool("wait"); waits && len(out.Lifted.Lifted) > 0 {
		var err error
		if out.Hosts, err = awaitHosts(ctx, cmd, c, out.Seq, in.Hosts, nil, "lifted"); err != nil {
			return err
		}
	}
	if command.JSON(cmd) {
		if err := command.PrintJSON(cmd.OutOrStdout(), out); err != nil {
			return err
		}
	} else {
		w := cmd.OutOrStdout()
		if n := len(out.Lifted.Lifted); n > 0 {
			fmt.Fprintf(w, "lifted %s\n", english.Plural(n, noun))
		}
		for i, text := range out.NotThere {
			if i == shownRefusals {
				fmt.Fprintf(w, "and %d more did not exist\n", len(out.NotThere)-i)
				break
			}
			fmt.Fprintf(w, "no %s of the fleet lies within %s\n", noun, text)
		}
		if out.Hosts != nil {
			printProved(w, "lifted", out.Hosts)
		}
	}
	if len(out.NotThere) > 0 || unenforced(out.Hosts) > 0 {
		return command.ErrFound
	}
	return nil
}

func newBans() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bans [ID|ADDRESS|PREFIX|RANGE]",
		Short: "List the bans of the fleet, and on how many hosts each is proved",
		Long: `Lists the bans of the fleet in effect, by address: on which hosts, how long, on how many of
them each is proved, who made it, when and why. With an ID, the first column, it shows for
each host

  proved    its kernel was read back: it has the ban, and a rule uses it
  refused   it refused the ban, and why
  waiting   it has the ban and does not enforce it, and why
  pending   it has not answered yet
  offline   it is not connected; it gets the ban when it is back
  unable    its sluice is too old for bans of a fleet

Exit status: 0 listed, with an ID: proved on each online host; 1 not on each; 2 bad use, no
such ID, or no controller answers.`,
		Example: "  sluice-controller bans\n  sluice-controller bans 203.0.113.0/24\n  sluice-controller bans --json | jq -r '.[] | select(.proved < .of) | .id'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listHeld(cmd, args, "bans", (*api.Client).Bans, (*api.Client).OneBan)
		},
	}
	addController(cmd)
	return cmd
}

func newAllows() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allows [ID|ADDRESS|PREFIX|RANGE]",
		Short: "List the addresses that the fleet lets in by command, and where",
		Long: `Lists the allows in effect, as "bans" lists bans: how long, who made them, why, and on how
many hosts each is proved. With an ID it shows whether that one is proved, for each host.

Exit status: 0 listed, with an ID: proved on each online host; 1 not on each; 2 bad use, no
such ID, or no controller answers.`,
		Example: "  sluice-controller allows\n  sluice-controller allows --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listHeld(cmd, args, "allows", (*api.Client).Allows, (*api.Client).OneAllow)
		},
	}
	addController(cmd)
	return cmd
}

func listHeld(cmd *cobra.Command, args []string, what string, list func(c *api.Client, ctx context.Context, within, after string) (*api.Holdings, error),
	one func(*api.Client, context.Context, string) (*api.HoldingOn, error),
) error {
	within := ""
	if len(args) > 0 {
		if _, err := addrset.ParseRange(args[0]); err != nil {
			return showHeld(cmd, args[0], what, one)
		}
		within = args[0]
	}
	c := controllerOf(cmd)
	all, after := []api.Holding{}, ""
	for {
		some, err := list(c, cmd.Context(), within, after)
		if err != nil {
			return hinted(err)
		}
		all = append(all, some.Entries...)
		if after = some.Next; after == "" {
			break
		}
	}
	sorting.StableBy(all, func(a, b api.Holding) int {
		x, _ := addrset.ParseRange(a.What)
		y, _ := addrset.ParseRange(b.What)
		return x.Compare(y)
	})
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), all)
	}
	return printHoldings(cmd.OutOrStdout(), what, all, time.Now())
}

func printHoldings(w io.Writer, what string, all []api.Holding, now time.Time) error {
	if len(all) == 0 {
		fmt.Fprintf(w, "the fleet has no %s\n", what)
		return nil
	}
	buffered := bufio.NewWriter(w)
	table := tabwriter.NewWriter(buffered, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "id\taddress\thosts\tproved\tuntil\tby\treason")
	for _, e := range all {
		address, hosts := e.What, e.Hosts
		if e.Service != "" {
			address += " " + e.Service
		}
		if hosts == "" {
			hosts = "all"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\n", e.Id, address, hosts, e.Proved, e.Of, command.Until(e.Expires, now), command.PlainName(e.Who), command.PlainName(e.Reason))
	}
	return errors.Join(table.Flush(), buffered.Flush())
}

func showHeld(cmd *cobra.Command, id, what string, one func(*api.Client, context.Context, string) (*api.HoldingOn, error)) error {
	found, err := one(controllerOf(cmd), cmd.Context(), id)
	if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == wire.KindNotFound {
		return fmt.Errorf("%s has no ID %.40q\nhint: sluice-controller %s lists them with their IDs", what, id, what)
	}
	if err != nil {
		return hinted(err)
	}
	if command.JSON(cmd) {
		err = command.PrintJSON(cmd.OutOrStdout(), found)
	} else {
		w, e := cmd.OutOrStdout(), found.Entry
		fmt.Fprintf(w, "%s until %s\n", describe(e), e.Expires.Local().Format(time.DateTime))
		fmt.Fprintf(w, "by %s at %s%s\n", command.PlainName(e.Who), e.Made.Local().Format(time.DateTime), strings.TrimRight(": "+command.PlainName(e.Reason), ": "))
		fmt.Fprintf(w, "enforced and proved on %d of %s\n", e.Proved, english.Plural(e.Of, "host"))
		printStanding(w, found.Hosts)
	}
	if err == nil && slices.ContainsFunc(found.Hosts, func(h api.HostStanding) bool { return !enforced(h) }) {
		return command.ErrFound
	}
	return err
}
