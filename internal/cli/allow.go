package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/addrset"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

func newAllow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allow ADDRESS|PREFIX|RANGE [SERVICE]",
		Short: "Let an address in at once, without touching the policy",
		Long: `Lets an address, prefix or range reach a service, or all of them, before the rules of the
running policy are evaluated: in input, in forward, and for ports published by DNAT. For
services that bypass connection tracking, replies pass too. It allows nothing else from that
address. Bans come first, unless you give --over-ban: then packets of the exception, replies
to them and ICMP errors pass every ban (by command, policy or limit), and everything else from
a banned address stays banned.

With --for the kernel ends the exception by its own clock; connections that began under it
go on. It survives applies, rollbacks and reboots until its time is up or "sluice disallow"
lifts it. A second one for the same address and service replaces the first. The policy may
restrict which addresses, and for how long, or forbid exceptions ("exceptions"). explain,
query, diff and verify take them into account; expectations of the policy are proved without
them. The policy is loaded again as a generation of its own, as with "sluice refresh".

SERVICE is written as in a rule: "ssh", "tcp/8080", "[http, https]"; a service that the policy
defines keeps the meaning that it has now. --for takes times such as 90s, 10m, 2h30m and 7d,
from 1s to 3650d; without it the exception holds until it is lifted. At most 256 hold at once.
` + filesHelp + `

Exit status: 0 allowed, 2 bad use, or it failed and nothing changed.`,
		Example: `  sluice allow 203.0.113.7 ssh --for 2h -m "ticket 4711"
  sluice allow 203.0.113.9 https --over-ban --for 1h
  sluice allow 198.51.100.0/24 "[http, https]" --for 1d`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := allowing(args)
			if err != nil {
				return err
			}
			in.OverBan = given(cmd, "over-ban")
			in.For = command.TimeOf(cmd.Flags(), "for")
			if cmd.Flags().Changed("for") && in.For < time.Second {
				return errors.New("--for is too short\nhint: give at least 1s, or omit it for an exception that does not end")
			}
			return excepting(cmd, "allowed", func(ctx context.Context, h door) (*engine.Allowed, error) { return h.Allow(ctx, in) })
		},
	}
	addMessage(cmd)
	command.AddTime(cmd.Flags(), "for", 0, "end it after `TIME`")
	cmd.Flags().Bool("over-ban", false, "also when the address is banned")
	addWait(cmd)
	return cmd
}

func newDisallow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disallow ADDRESS|PREFIX|RANGE [SERVICE]",
		Short: "Lift exceptions made by \"sluice allow\"",
		Long: `Lifts the exceptions of an address, prefix or range: the one for SERVICE, or all of them
without it. Connections that began under it go on; "sluice ban" ends them. Exceptions of the
host's fleet are lifted by "sluice-controller disallow".

If somebody who is logged in over ssh could not come back, nothing changes without --force.
` + filesHelp + `

Exit status: 0 lifted, 1 there was none, the fleet allows it, or somebody would be locked out and
nothing changed, 2 bad use, or it failed.`,
		Example: `  sluice disallow 203.0.113.7 ssh
  sluice allows --json | jq -r '.[].what' | xargs -n 1 sluice disallow`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeAllowed,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := allowing(args)
			if err != nil {
				return err
			}
			in.Force = given(cmd, "force")
			return excepting(cmd, "lifted", func(ctx context.Context, h door) (*engine.Allowed, error) { return h.Disallow(ctx, in) })
		},
	}
	addMessage(cmd)
	cmd.Flags().Bool("force", false, "even if somebody who is logged in over ssh could not come back")
	addWait(cmd)
	return cmd
}

func allowing(args []string) (engine.Allowing, error) {
	what, err := addrset.ParseRange(args[0])
	in := engine.Allowing{What: what}
	if len(args) > 1 {
		in.Service = args[1]
	}
	return in, err
}

// excepting has the exceptions changed, and says what came of it.
func excepting(cmd *cobra.Command, done string, change func(context.Context, door) (*engine.Allowed, error)) error {
	return onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
		out, err := change(ctx, h)
		if err != nil {
			return err
		}
		err = answer(cmd, out, false, func(w io.Writer) {
			for _, text := range out.Notes {
				note(cmd, text)
			}
			for _, e := range out.Exceptions {
				fmt.Fprintf(w, "%s %s%s\n", done, e.Text(), map[bool]string{true: " " + endText(e, "until it is lifted")}[done == "allowed"])
			}
		})
		if err == nil && out.LockedOut != "" {
			return command.Found(out.LockedOut + " is logged in over ssh and could not come back: nothing was changed\nhint: --force lifts it anyway")
		}
		return err
	})(cmd, nil)
}

func endText(e apply.Exception, forGood string) string {
	if e.Until.IsZero() {
		return forGood
	}
	return "until " + e.Until.Local().Format(time.DateTime)
}

func newAllows() *cobra.Command {
	return &cobra.Command{
		Use:   "allows",
		Short: "List exceptions made by command and by the fleet",
		Long: `Lists the exceptions in force, made by "sluice allow" or by the host's fleet ("via fleet"):
which address may reach what, how long, who made it, when and why. "sluice status" counts
their packets, by line, as "exceptions:1".
` + filesHelp + `

Exit status: 0 listed, 2 bad use, or it could not be read.`,
		Example: "  sluice allows\n  sluice allows --json",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			list, err := h.Allows(ctx)
			if err != nil {
				return err
			}
			return answer(cmd, list, false, func(w io.Writer) { printAllows(w, list) })
		}),
	}
}

func printAllows(w io.Writer, list []engine.AllowEntry) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no exceptions")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "address\tto\tuntil\tby\tsince\treason")
	now := time.Now()
	for _, e := range list {
		until := command.Until(e.Until, now)
		switch {
		case e.Lifted:
			until += ", lifted but still in force"
		case !e.InForce:
			until += ", not in force"
		}
		by := e.By
		by.Reason = ""
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", e.What, e.To(), until, whoText(by), e.Since.Local().Format(time.DateTime), e.By.Reason)
	}
	_ = table.Flush()
}

// completeAllowed offers who is let in.
func completeAllowed(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	h.Note = nil
	list, err := h.Allows(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, e := range list {
		switch {
		case len(args) == 0:
			out = append(out, cobra.CompletionWithDesc(e.What, e.By.Reason))
		case e.What == args[0] && e.Service != "":
			out = append(out, e.Service)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
