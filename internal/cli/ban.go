package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
)

// banInputHelp is for the commands that take what they work on from lines too.
const banInputHelp = `
Give them as arguments, or one a line on standard input ("-", or no argument and standard
input is no terminal). A line is an address, prefix, range or country, optionally followed by
"for" and a time, then a reason; # begins a comment.`

func newBan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ban [ADDRESS|PREFIX|RANGE|COUNTRY|-]...",
		Short: "Ban addresses at once, without touching the policy",
		Long: `Drops packets from and to addresses, prefixes and ranges from now on, including those of
existing connections. The policy does not change. A ban survives applies, rollbacks, restarts
and reboots until its time is up or "sluice unban" lifts it. A second ban of the same replaces
the first.
` + banInputHelp + `

Name a country by its code, such as DE. The addresses that it has in the country data of this
moment are banned ("sluice geo list"); newer data do not change the ban.

Never banned are addresses in never-ban of the policy, loopback, link-local and multicast
addresses, and this host's own. If a prefix contains some of these, the rest is banned, and
the command reports what was spared. Only --force bans who is logged in over ssh now, or may
be (ssh servers other than OpenSSH do not show who is connected), and prefixes or ranges as
wide as an IPv4 /7 or an IPv6 /15, unless it is a country. A ban of the host's default gateway
or of a name server gives a warning.

--for and --message apply to arguments, and to lines without a time or reason of their own; the
reason of a line is cut to 200 bytes. Times are such as 90s, 10m, 2h30m and 7d, from 1s to
3650d; without one a ban holds until it is lifted.

The running policy must have an input, forward or output section.
` + filesHelp + `

Exit status: 0 banned, 1 some or all of it was refused and the rest is banned, or somebody
removed the rules that enforce bans, 2 bad use, or it failed and nothing is banned.`,
		Example: `  sluice ban 203.0.113.7 --for 1h -m "ssh: 40 bad passwords"
  sluice ban 198.51.100.0/24 2001:db8:bad::/48
  sluice ban KP --for 2h -m "flood"
  sluice ban - --for 1d < scanners.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: runBan,
	}
	addMessage(cmd)
	command.AddTime(cmd.Flags(), "for", 0, "lift the ban after `TIME`")
	cmd.Flags().String("reason", "", "as --message, cut if too long") // what it was called first
	command.Must(cmd.Flags().MarkHidden("reason"))
	cmd.Flags().Bool("keep-longer", false, "keep an existing ban that holds longer")
	cmd.MarkFlagsMutuallyExclusive("message", "reason")
	cmd.Flags().Bool("force", false, "also ban who is or may be logged in over ssh, and large parts of the internet")
	addWait(cmd)
	return cmd
}

func runBan(cmd *cobra.Command, args []string) error {
	list, err := command.BanInput(cmd, args)
	if err != nil {
		return err
	}
	in := apply.Banning{List: list, For: command.TimeOf(cmd.Flags(), "for")}
	if cmd.Flags().Changed("for") && in.For < time.Second {
		return errors.New("--for is too short\nhint: give at least 1s, or omit it for a ban that does not end")
	}
	in.Force, in.KeepLonger = given(cmd, "force"), given(cmd, "keep-longer")
	if reason, _ := cmd.Flags().GetString("reason"); reason != "" {
		cut := bans.Reason(reason)
		if len(strings.Join(strings.Fields(reason), " ")) > bans.MaxReason {
			warn(cmd.ErrOrStderr(), fmt.Sprintf("the reason is cut to %d bytes: %q", bans.MaxReason, cut))
		}
		if err := cmd.Flags().Set("message", cut); err != nil {
			return err
		}
	}
	return onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
		out, err := h.Ban(ctx, in)
		if err != nil {
			return err
		}
		err = answer(cmd, out, false, func(w io.Writer) {
			for i, text := range out.Notes {
				if i == shownRefusals {
					note(cmd, fmt.Sprintf("and %d more such notes, with --json", len(out.Notes)-i))
					break
				}
				note(cmd, text)
			}
			printBanned(w, in, out)
		})
		switch {
		case err != nil:
			return err
		case !out.InForce:
			return command.Found("the rules do not enforce bans: somebody else changed them\nhint: sluice restore" + command.HereArguments(cmd))
		case len(out.Refused) > 0:
			return command.Found(refusedText(out.Refused))
		}
		return nil
	})(cmd, nil)
}

func printBanned(w io.Writer, in apply.Banning, out *apply.Banned) {
	if out.Kept > 0 {
		fmt.Fprintf(w, "kept, since a longer ban holds: %d\n", out.Kept)
	}
	if out.Banned == 0 {
		return
	}
	what, until := fmt.Sprintf("%d addresses, prefixes and ranges", out.Banned), "until they are lifted"
	switch {
	case out.Given == 1:
		what, until = in.List[0].Name(), "until it is lifted"
	case out.Banned == 1:
		what, until = fmt.Sprintf("1 of %d", out.Given), "until it is lifted"
	}
	if slices.ContainsFunc(in.List, func(n bans.Named) bool { return n.For > 0 }) {
		until = "each until its time is up"
	} else if !out.Until.IsZero() {
		until = "until " + out.Until.Local().Format(time.DateTime)
	}
	fmt.Fprintf(w, "banned %s %s\n", what, until)
}

// shownRefusals bounds what is said of a long input.
const shownRefusals = 20

func refusedText(list []apply.Refused) string {
	var b strings.Builder
	for i, r := range list {
		if i == shownRefusals {
			fmt.Fprintf(&b, "and %d more were refused\n", len(list)-i)
			break
		}
		fmt.Fprintf(&b, "refused %s: %s\n", r.What, r.Why)
	}
	return strings.TrimRight(b.String(), "\n")
}
