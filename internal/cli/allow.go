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
	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

func newAllow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allow ADDRESS|PREFIX|RANGE [SERVICE]",
		Short: "Let an address in at once, without touching the policy",
		Long: `Lets an address, prefix or range in to a service, or to all, before the rules of the
policy that runs: in input, in forward, and to ports that are published by a DNAT. For
services that bypass connection tracking the answers pass too. What the address may not
do beside that it may not do afterwards either. Bans come first, unless --over-ban is given:
then what is let in goes by every ban, of commands, of the policy and of limits, and so do
the answers to it and ICMP errors; all else of a banned address stays banned.

The kernel ends it by itself, by its own clock, with --for; what began before goes on.
It is kept over applies, rollbacks and reboots, until its time is up or "sluice disallow"
lifts it; a second one for the same address and service takes the place of the first. The
policy may bound who is let in, and for how long, or forbid it ("exceptions").
explain, query, diff and verify know of it. Expectations of the policy are proved
without it. The policy is loaded anew, as by "sluice refresh", in a generation of its own.

SERVICE is as in a rule: "ssh", "tcp/8080", "[http, https]"; a service of the policy's own
means what it means now. --for takes whole times such as 90s, 10m, 2h30m and 7d, from 1s
to 3650d; without it the exception holds until it is lifted. At most 256 hold at a time.
` + filesHelp + `

Exit status: 0 allowed, 2 bad use, or it failed: then nothing changed.`,
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
				return errors.New("--for is too short\nhint: give at least 1s, or leave it out for an exception without an end")
			}
			return excepting(cmd, "allowed", func(ctx context.Context, h door) (*engine.Allowed, error) { return h.Allow(ctx, in) })
		},
	}
	addMessage(cmd)
	command.AddTime(cmd.Flags(), "for", 0, "end it by itself after `TIME`")
	cmd.Flags().Bool("over-ban", false, "before bans too")
	addWait(cmd)
	return cmd
}

func newDisallow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disallow ADDRESS|PREFIX|RANGE [SERVICE]",
		Short: "Lift what \"sluice allow\" let in",
		Long: `Lifts the exceptions of an address, prefix or range: that for one service, or without
SERVICE all. Connections that began under it go on; "sluice ban" ends them. Whom the
fleet of the host lets in, "sluice-controller disallow" lifts.

Where somebody who is logged in over ssh could not come back, nothing is changed unless
--force is given.
` + filesHelp + `

Exit status: 0 lifted, 1 somebody would be locked out and nothing changed, 2 bad use, it
was not let in, or it failed.`,
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
	cmd.Flags().Bool("force", false, "also where somebody who is logged in over ssh could not come back")
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
			return command.Found(out.LockedOut + " is logged in over ssh and could not come back: nothing was changed\nhint: --force lifts it all the same")
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
		Short: "List whom commands and the fleet let in: to what, until when, by whom, why",
		Long: `Lists the exceptions that "sluice allow" made and that hold, and those of the fleet that
the host is of, "via fleet": which address may reach
what, until when, who let it in, when and why. How many packets came by each, "sluice
status" says by line, as "exceptions:1".
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
		fmt.Fprintln(w, "nobody is let in by command")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "address\tto\tuntil\tby\tsince\treason")
	now := time.Now()
	for _, e := range list {
		until := "forever"
		if !e.Until.IsZero() {
			until = fmt.Sprintf("%s (%s)", e.Until.Local().Format(time.DateTime), english.Span(e.Until.Sub(now)))
		}
		switch {
		case e.Lifted:
			until += ", lifted and still in force"
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
