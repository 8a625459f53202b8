package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

func newRequests() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "requests [ID]",
		Short: "List what waits for the approval of a second person",
		Long: `Lists the requests for which fleet.yaml ("approve") requires a second person, each as the
command that makes it, and the hosts with a token of --approve that wait to be let in (enrol);
the newest first. With --all it also lists those decided in the last month. With an ID it
prints the whole request, which is what "approve" runs, and its result.

Exit status: 0 fine, 2 bad use, there is no such request, or no controller answers.`,
		Example: "  sluice-controller requests\n  sluice-controller requests 3f0c52a1b97e44d0",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := controllerOf(cmd)
			if len(args) == 1 {
				is, err := c.Request(cmd.Context(), args[0])
				if err != nil {
					return hintedRequest(err)
				}
				return printRequest(cmd, is)
			}
			every, _ := cmd.Flags().GetBool("all")
			found, err := c.Requests(cmd.Context(), every)
			if err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), found)
			}
			if len(found.Requests) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing waits for approval")
				return nil
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "id\tstate\tby\tasked\tuntil\tasks for")
			for _, r := range found.Requests {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", command.PlainName(r.Id), r.State, command.PlainName(r.Who),
					r.Asked.Local().Format(time.DateTime), r.Expires.Local().Format(time.DateTime), command.PlainName(r.Asks))
			}
			return table.Flush()
		},
	}
	addController(cmd)
	cmd.Flags().Bool("all", false, "also those decided in the last month")
	return cmd
}

func newApprove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve a request of somebody else, which then runs",
		Long: `Approves a request, which then runs at once, and only once, in the name of whoever made it
and with the rights that they have now. Look at it first with "requests ID": the ID is a hash of its
content. The approver must be a person other than the one who asked, must neither have given
access to that person nor have got it from them, and must be allowed to do the same on all hosts
concerned.

On the controller's own machine, root and the controller's user count as one person. --alone
approves there what was asked for there; the audit records that nobody else approved it.

Any admin of hosts with its labels can let in a host that waits (enrol); it joins within
seconds, or as soon as it is back. Compare the hash of its key with the one on the host's screen.

Exit status: 0 done, or the host is let in; 1 approved, but it failed; 2 bad use, or it may
not be approved.`,
		Example: "  sluice-controller approve 3f0c52a1b97e44d0 -m 'as agreed'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			why, _ := cmd.Flags().GetString("message")
			alone, _ := cmd.Flags().GetBool("alone")
			is, err := controllerOf(cmd).Approve(cmd.Context(), args[0], api.Approval{Why: why, Alone: alone})
			if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == wire.KindRole && strings.Contains(f.Text, "operator:") && !alone {
				return fmt.Errorf("%w\nhint: if there is nobody else, --alone approves what was requested on this machine, and the audit records it", err)
			}
			if err != nil {
				return hintedRequest(err)
			}
			if err := printRequest(cmd, is); err != nil {
				return err
			}
			if is.State == api.RequestFailed {
				return command.ErrFound
			}
			return nil
		},
	}
	addController(cmd)
	cmd.Flags().StringP("message", "m", "", "`TEXT` for the audit: why")
	cmd.Flags().Bool("alone", false, "approve without a second person; only on the controller's own machine, what was requested there")
	return cmd
}

func newRefuse() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refuse ID",
		Short: "Refuse or withdraw what waits for approval",
		Long: `Refuses a request, which then never runs. You can refuse your own requests, and those for what
you may do yourself.

Exit status: 0 refused, 2 bad use, or it no longer waits.`,
		Example: "  sluice-controller refuse 3f0c52a1b97e44d0 -m 'not on a Friday'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			why, _ := cmd.Flags().GetString("message")
			is, err := controllerOf(cmd).Refuse(cmd.Context(), args[0], why)
			if err != nil {
				return hintedRequest(err)
			}
			return printRequest(cmd, is)
		},
	}
	addController(cmd)
	cmd.Flags().StringP("message", "m", "", "`TEXT` for the requester and the audit: why")
	return cmd
}

// hintedRequest is hinted of what names a request.
func hintedRequest(err error) error {
	if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == wire.KindNotFound {
		return fmt.Errorf("%w\nhint: sluice-controller requests --all lists them", err)
	}
	return hinted(err)
}

// printRequest prints all of a request.
func printRequest(cmd *cobra.Command, r *api.Request) error {
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		return command.PrintJSON(w, r)
	}
	fmt.Fprintf(w, "request %s: %s %s by %s at %s\n", command.PlainName(r.Id), command.Paint(w, "1", string(r.State)), command.PlainName(r.What), command.PlainName(r.Who), r.Asked.Local().Format(time.DateTime))
	if !r.Decided.IsZero() {
		alone := ""
		if r.Alone {
			alone = ", alone"
		}
		why := command.PlainName(r.Why)
		if why != "" {
			why = ": " + why
		}
		fmt.Fprintf(w, "  decided by %s%s at %s%s\n", command.PlainName(r.By), alone, r.Decided.Local().Format(time.DateTime), why)
	} else {
		fmt.Fprintf(w, "  until %s\n", r.Expires.Local().Format(time.DateTime))
	}
	if r.Failure != "" {
		fmt.Fprintf(w, "  not done: %s\n", command.PlainName(r.Failure))
	}
	fmt.Fprintf(w, "  %s\n\n  %s %s\n", command.Paint(w, "1", command.PlainName(r.Asks)), command.PlainName(r.Method), command.PlainName(r.Path))
	printBody(w, r.Body)
	return nil
}

// printBody prints a value of JSON as people read it.
func printBody(w io.Writer, body []byte) {
	var text bytes.Buffer
	if len(body) == 0 || json.Indent(&text, body, "  ", "  ") != nil {
		return
	}
	for line := range strings.Lines("  " + text.String()) {
		fmt.Fprintln(w, command.PlainName(strings.TrimRight(line, "\n")))
	}
}

// patient has a command wait for approval, and says so.
func patient(cmd *cobra.Command, c *api.Client) {
	c.Patient(func(r api.Request) {
		fmt.Fprintf(cmd.ErrOrStderr(), "request %s waits for the approval of a second person until %s\n", command.PlainName(r.Id), r.Expires.Local().Format(time.DateTime))
	})
}
