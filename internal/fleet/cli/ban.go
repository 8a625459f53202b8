package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/language/bans"
)

// holdsAtOnce is how many bans are in one request.
const holdsAtOnce = 10_000

const livingHelp = `
The controller answers once it is on disk; hosts get it within half a second, and hosts that
are offline when they come back. With --wait the command ends when every online host of the
selection has read it back from its kernel, with a rule that uses it. Interrupting the command
changes nothing. Where fleet.yaml requires a second person ("approve"), nothing takes effect
before they approve; --wait waits for that too.`

func newBan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ban [ADDRESS|PREFIX|RANGE|-]...",
		Short: "Ban addresses on hosts at once, without a new bundle",
		Long: `Drops packets from and to addresses, prefixes and ranges, on all hosts or on those of a
selector. fleet.yaml of the newest bundle sets the limits ("bans"): how many, how wide and for
how long; hosts enforce them too. A second ban of the same addresses for the same selector
replaces the first. A host's own bans hold as well as those of the fleet.
` + livingHelp + `

What to ban is given as arguments, or on standard input: for "-", or without arguments when
standard input is no terminal. As with "sluice ban", a line has one address, prefix or range,
then optionally "for" and a time, and a reason; # starts a comment. --for and --message apply to
lines without their own. Without a time a ban lasts as long as fleet.yaml allows.

Exit status: 0 banned, with --wait enforced on each online host of the selection, 1 some were
refused, wait for approval, or a host does not enforce them, 2 bad use, or it failed.`,
		Example: `  sluice-controller ban 203.0.113.7 --for 1h -m "ssh: 40 bad passwords" --wait
  sluice-controller ban 198.51.100.0/24 --hosts "role=web and env=prod" --for 1d
  sluice-controller ban - --for 1d < scanners.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := command.BanInput(cmd, args)
			if err != nil {
				return err
			}
			in, err := holdsOf(cmd)
			if err != nil {
				return err
			}
			in.KeepLonger, _ = cmd.Flags().GetBool("keep-longer")
			for _, n := range list {
				in.Entries = append(in.Entries, api.NewHolding{What: n.Name(), Reason: n.Reason, ForSeconds: int64(n.For / time.Second)})
			}
			return holding(cmd, "banned", "ban", in, (*api.Client).Ban)
		},
	}
	addHolding(cmd)
	cmd.Flags().Bool("keep-longer", false, "keep an existing ban that holds longer")
	return cmd
}

func newAllow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allow ADDRESS|PREFIX|RANGE [SERVICE]",
		Short: "Let an address in on hosts at once, without a new bundle",
		Long: `Lets an address, prefix or range in to a service, or to all services, before the rules of the
policy, as "sluice allow" does on one host; on all hosts, or on those of a selector. fleet.yaml
of the newest bundle sets the limits ("exceptions"), which hosts enforce too. Bans come first.
--for is required: hosts end the allow at its time, with or without a controller.
` + livingHelp + `

Exit status: 0 let in, with --wait on each online host of the selection, 1 it was refused,
waits for approval, or a host does not enforce it, 2 bad use, or it failed.`,
		Example: `  sluice-controller allow 203.0.113.7 ssh --for 2h -m "ticket 4711" --hosts role=db --wait`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := holdsOf(cmd)
			if err != nil {
				return err
			}
			in.Entries = []api.NewHolding{{What: args[0]}}
			if len(args) > 1 {
				in.Entries[0].Service = args[1]
			}
			return holding(cmd, "allowed", "allow", in, (*api.Client).Allow)
		},
	}
	addHolding(cmd)
	return cmd
}

func addHolding(cmd *cobra.Command) {
	addController(cmd)
	command.AddTime(cmd.Flags(), "for", 0, "end it after `TIME`")
	cmd.Flags().StringP("message", "m", "", "why it is done, a `REASON` that hosts show")
	cmd.Flags().String("hosts", "", "only on the hosts of a `SELECTOR`")
	cmd.Flags().Bool("wait", false, "wait until each host that is online has it in its kernel")
}

// holdsOf is a request without its entries.
func holdsOf(cmd *cobra.Command) (api.NewHoldings, error) {
	in := api.NewHoldings{ForSeconds: int64(command.TimeOf(cmd.Flags(), "for") / time.Second)}
	if cmd.Flags().Changed("for") && in.ForSeconds < 1 {
		return in, errors.New("--for is too short\nhint: give at least 1s")
	}
	in.Hosts, _ = cmd.Flags().GetString("hosts")
	reason, _ := cmd.Flags().GetString("message")
	if in.Reason = bans.Reason(reason); in.Reason != strings.TrimSpace(reason) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s the reason is cut to %d bytes of text: %q\n", command.Paint(cmd.ErrOrStderr(), "33", "warning:"), bans.MaxReason, in.Reason)
	}
	return in, nil
}

// heldJSON is what ban and allow print with --json.
type heldJSON struct {
	api.Held
	Hosts []api.HostStanding `json:"hosts,omitempty"` // with --wait
}

// holding has it held, and says what came of it.
func holding(cmd *cobra.Command, done, noun string, in api.NewHoldings, hold func(*api.Client, context.Context, api.NewHoldings) (*api.Held, error)) error {
	c := controllerOf(cmd)
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	waits, _ := cmd.Flags().GetBool("wait")
	if waits {
		patient(cmd, c)
	}
	var wait []error // a request of each part
	out := heldJSON{Held: api.Held{Written: []api.Holding{}}}
	for some := range slices.Chunk(in.Entries, holdsAtOnce) {
		part := in
		part.Entries = some
		made, err := hold(c, ctx, part)
		if is := (*api.WaitingError)(nil); errors.As(err, &is) && is.Request.State == api.RequestWaiting {
			wait = append(wait, err)
			continue
		}
		if err != nil {
			return hinted(err)
		}
		out.Seq = max(out.Seq, made.Seq)
		out.Kept += made.Kept
		out.Written, out.Refused = append(out.Written, made.Written...), append(out.Refused, made.Refused...)
	}
	if len(wait) > 0 {
		return waiting(errors.Join(wait...))
	}
	lacking := 0
	var err error
	if waits && len(out.Written) > 0 {
		ours := map[string]bool{}
		for _, e := range out.Written {
			ours[e.Id] = true
		}
		if out.Hosts, err = awaitHosts(ctx, cmd, c, out.Seq, in.Hosts, ours, "enforced"); err != nil {
			return err
		}
		lacking = unenforced(out.Hosts)
	}
	if command.JSON(cmd) {
		if err := command.PrintJSON(cmd.OutOrStdout(), out); err != nil {
			return err
		}
	} else {
		printHeld(cmd.OutOrStdout(), done, noun, &out)
	}
	if len(out.Refused) > 0 || lacking > 0 {
		return command.ErrFound
	}
	return nil
}

func printHeld(w io.Writer, done, noun string, out *heldJSON) {
	if out.Kept > 0 {
		fmt.Fprintf(w, "unchanged: %d\n", out.Kept)
	}
	refused := slices.ContainsFunc(out.Hosts, func(h api.HostStanding) bool { return !enforced(h) })
	nowhere := refused && !slices.ContainsFunc(out.Hosts, func(h api.HostStanding) bool { return h.State == api.LiveProved })
	switch n := len(out.Written); {
	case n == 0:
	case n == 1 && nowhere:
		e := out.Written[0]
		fmt.Fprintf(w, "no host enforces the %s of %s, which the fleet keeps until %s\n", noun, describe(e), e.Expires.Local().Format(time.DateTime))
	case nowhere:
		fmt.Fprintf(w, "no host enforces all of the %d %ss, which the fleet keeps\n", n, noun)
	case n == 1:
		e := out.Written[0]
		fmt.Fprintf(w, "%s %s until %s\n", done, describe(e), e.Expires.Local().Format(time.DateTime))
	default:
		fmt.Fprintf(w, "%s %d addresses, prefixes and ranges\n", done, n)
	}
	for i, r := range out.Refused {
		if i == shownRefusals {
			fmt.Fprintf(w, "and %d more were refused\n", len(out.Refused)-i)
			break
		}
		why, beneath, _ := strings.Cut(r.Why, "\n")
		fmt.Fprintf(w, "refused %s: %s\n", command.PlainName(r.What), command.PlainName(why))
		for line := range strings.Lines(beneath) {
			fmt.Fprintf(w, "    %s\n", command.PlainName(strings.TrimRight(line, "\n")))
		}
	}
	if out.Hosts != nil {
		printProved(w, "enforced", out.Hosts)
	}
	if nowhere && len(out.Written) == 1 {
		fmt.Fprintf(w, "hint: sluice-controller %s %s takes it back\n", map[string]string{"ban": "unban", "allow": "disallow"}[noun], takenBack(out.Written[0]))
	}
}

// takenBack are the arguments that take back what is held.
func takenBack(e api.Holding) string {
	text := command.ShellWord(e.What)
	if e.Service != "" {
		text += " " + command.ShellWord(e.Service)
	}
	if e.Hosts != "" {
		text += " --hosts " + command.ShellWord(e.Hosts)
	}
	return text
}

// printProved says on how many hosts something is done, and proved, and names the others.
func printProved(w io.Writer, done string, hosts []api.HostStanding) {
	lacking := slices.DeleteFunc(slices.Clone(hosts), func(h api.HostStanding) bool { return h.State == api.LiveProved })
	fmt.Fprintf(w, "%s and proved on %d of %s\n", done, len(hosts)-len(lacking), english.Plural(len(hosts), "host"))
	printStanding(w, lacking)
}

// shownRefusals bounds what is said of a long input.
const shownRefusals = 20

// describe is what is held, and where.
func describe(e api.Holding) string {
	text := e.What
	if e.Service != "" {
		text += " " + e.Service
	}
	if e.Hosts != "" {
		text += " on hosts with " + e.Hosts
	}
	return text
}

func printStanding(w io.Writer, hosts []api.HostStanding) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, h := range hosts {
		since := command.PlainName(h.Reason)
		if h.State == api.LiveProved {
			since = "at " + h.Proved.Local().Format(time.DateTime)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", h.Host, command.Paint(w, liveColours[h.State], string(h.State)), since)
	}
	_ = table.Flush()
}

// liveColours are those of states.
var liveColours = map[api.LiveState]string{
	api.LiveProved: "32", api.LiveRefused: "31", api.LiveUnable: "31", api.LiveWaiting: "33", api.LivePending: "33", api.LiveOffline: "33",
}

// enforced says that nobody has to wait for a host: it enforces it, or is not there.
func enforced(h api.HostStanding) bool {
	return h.State == api.LiveProved || h.State == api.LiveOffline
}

// unenforced is on how many hosts one would have to wait for it.
func unenforced(hosts []api.HostStanding) int {
	return len(slices.DeleteFunc(slices.Clone(hosts), enforced))
}

// How often a controller is asked how far hosts are, and how long a host may say that it
// cannot do it before that counts.
const (
	hostsAskedEvery = 200 * time.Millisecond
	hostsWait       = 30 * time.Second
)

// awaitHosts waits until the hosts of a selector have all up to a number in force, and prints
// on how many it is done and proved. Of what hosts refuse only what is ours counts.
func awaitHosts(ctx context.Context, cmd *cobra.Command, c *api.Client, seq int64, hosts string, ours map[string]bool, done string) ([]api.HostStanding, error) {
	told := -1
	for begun := time.Now(); ; {
		is, err := c.Living(ctx, seq, hosts)
		if err != nil && ctx.Err() == nil {
			return nil, hinted(err)
		}
		if err == nil {
			open := 0
			for i := range is.Hosts {
				h := &is.Hosts[i]
				if h.State == api.LiveRefused {
					h.Refused = slices.DeleteFunc(h.Refused, func(r api.NotLive) bool { return !ours[r.Id] })
					if len(h.Refused) == 0 {
						h.State, h.Reason = api.LiveProved, ""
						is.Proved++
					}
				}
				if h.State == api.LivePending || h.State == api.LiveWaiting {
					open++
				}
			}
			if is.Proved != told {
				told = is.Proved
				fmt.Fprintf(cmd.ErrOrStderr(), "%s and proved on %d of %s\n", done, told, english.Plural(len(is.Hosts), "host"))
			}
			if open == 0 || time.Since(begun) > hostsWait {
				return is.Hosts, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; the controller carries on\nhint: sluice-controller bans ID says on which hosts", context.Cause(ctx))
		case <-time.After(hostsAskedEvery):
		}
	}
}
