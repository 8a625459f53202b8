package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/notices"
)

func newNotices() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notices",
		Short: "List what is wrong in the fleet, and who was notified",
		Long: `Lists what is wrong in the fleet: hosts that drift or refuse what they should run, roll-outs
that were halted, certificates and signatures near their end, live lists that cannot be renewed;
and for each, which receivers were notified. Then the receivers of notices.yaml, what they
accepted, and why one accepts nothing. Where the file has an error, the controller uses the
receivers that are valid, or the journal, and this command reports it.

Exit status: 0 nothing is wrong and every receiver accepts what it is sent, 1 something is
wrong, or a receiver accepts nothing, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller notices\n  sluice-controller notices --all --json | jq '.notices[] | select(.kind == \"drift\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, _ := cmd.Flags().GetBool("all")
			found, err := controllerOf(cmd).Notices(cmd.Context(), all)
			if err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				err = command.PrintJSON(cmd.OutOrStdout(), found)
			} else {
				printNotices(cmd.OutOrStdout(), found, time.Now())
			}
			warnChanged(cmd, found.Changed)
			if found.Wrong != "" {
				w := cmd.ErrOrStderr()
				fmt.Fprintf(w, "%s the controller ignores what is wrong in notices.yaml:\n%s\n", command.Paint(w, "31", "error:"), found.Wrong)
				if err == nil {
					err = command.ErrFound
				}
			}
			for _, n := range found.Notices {
				if err == nil && n.Ended.IsZero() {
					err = command.ErrFound
				}
			}
			for _, r := range found.Receivers {
				if err == nil && r.Failure != "" {
					err = command.ErrFound
				}
			}
			return err
		},
	}
	addController(cmd)
	cmd.Flags().Bool("all", false, "also those that ended in the last 30 days")
	cmd.AddCommand(newNoticesTest(), newNoticesCheck())
	return cmd
}

func newNoticesTest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Send a notice to each receiver, and show what each answered",
		Long: `Has the controller send a notice to each receiver of its notices.yaml at the same time,
whatever "only" says, and shows what each answered. It requires the role admin; a test can be sent
every 20 seconds, and the audit records each.

Exit status: 0 each accepted it, 1 one did not, or there is none, or notices.yaml has changed
since the controller started, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller notices test",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := controllerOf(cmd).TestNotices(cmd.Context())
			if err != nil {
				return hinted(err)
			}
			failed := len(found.Receivers) == 0 || found.Changed
			for _, r := range found.Receivers {
				failed = failed || r.Failure != ""
			}
			if command.JSON(cmd) {
				err = command.PrintJSON(cmd.OutOrStdout(), found)
			} else {
				printTested(cmd.OutOrStdout(), found.Receivers)
			}
			warnChanged(cmd, found.Changed)
			if err == nil && failed {
				err = command.ErrFound
			}
			return err
		},
	}
	addController(cmd)
	return cmd
}

func newNoticesCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check notices.yaml",
		Long: `Reads notices.yaml in the directory of a controller, as the controller does when it starts,
and shows who gets which notices. Without the file all go to the journal.

Exit status: 0 fine, 2 the file is wrong, or bad use.`,
		Example: "  sluice-controller notices check --dir ./controller",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, _ := cmd.Flags().GetString("dir")
			c, err := notices.Load(dir, nil)
			if err != nil {
				return err
			}
			type receiver struct {
				Name string         `json:"name"`
				How  string         `json:"how"`
				Only []notices.Kind `json:"only,omitempty"`
			}
			out := struct {
				File      string     `json:"file"`
				Receivers []receiver `json:"receivers"`
			}{File: filepath.Join(dir, notices.File)}
			for i := range c.Receivers {
				r := &c.Receivers[i]
				out.Receivers = append(out.Receivers, receiver{r.Name, r.How(), r.Only})
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), out)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, r := range out.Receivers {
				what := "everything"
				if len(r.Only) > 0 {
					var kinds []string
					for _, k := range r.Only {
						kinds = append(kinds, string(k))
					}
					what = english.List(kinds)
				}
				fmt.Fprintf(table, "%s\t%s\t%s\n", r.Name, command.PlainName(r.How), what)
			}
			return table.Flush()
		},
	}
	cmd.Flags().String("dir", defaultDir, "`DIR` of the controller")
	command.Must(cmd.MarkFlagDirname("dir"))
	return cmd
}

func warnChanged(cmd *cobra.Command, is bool) {
	if is {
		w := cmd.ErrOrStderr()
		fmt.Fprintf(w, "%s notices.yaml has changed since the controller read it: restart the controller\n", command.Paint(w, "33", "warning:"))
	}
}

func printNotices(w io.Writer, found *api.Notices, now time.Time) {
	ago := func(at time.Time) string { return english.Span(now.Sub(at)) + " ago" }
	if len(found.Notices) == 0 {
		fmt.Fprintln(w, "no notice is open")
	}
	for _, n := range found.Notices {
		state := command.Paint(w, "31", "since") + " " + ago(n.Since)
		if !n.Away.IsZero() {
			state += ", away since " + ago(n.Away)
		}
		if !n.Ended.IsZero() {
			state = command.Paint(w, "32", "ended") + " " + ago(n.Ended)
		}
		var told []string
		for _, is := range n.Told {
			told = append(told, is.Receiver+" ("+is.Event+", "+ago(is.At)+")")
		}
		heard := "sent to nobody"
		if len(told) > 0 {
			heard = "sent to " + strings.Join(told, ", ")
		}
		fmt.Fprintf(w, "%s\n  %s, %s\n", command.PlainName(n.Text), state, command.PlainName(heard))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range found.Receivers {
		state := command.Paint(w, "32", "fine")
		if r.Failure != "" {
			state = command.Paint(w, "31", "fails")
		}
		last := "nothing sent yet"
		if !r.At.IsZero() {
			last = fmt.Sprintf("%s sent, the last %s", english.Plural(int(r.Sent), "message"), ago(r.At))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Name, state, command.PlainName(r.How), last)
	}
	_ = table.Flush()
	for _, r := range found.Receivers {
		if r.Failure != "" {
			fmt.Fprintf(w, "%s: %s; since %s, %s waiting, tried again in %s\n", r.Name, command.PlainName(r.Failure), ago(r.Failing),
				english.Plural(r.Waiting, "notice"), english.Span(r.Next.Sub(now)))
		}
	}
}

func printTested(w io.Writer, all []api.TestedReceiver) {
	if len(all) == 0 {
		fmt.Fprintln(w, "the controller notifies nobody")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range all {
		state, said := command.Paint(w, "32", "took it"), r.Said
		if r.Failure != "" {
			state, said = command.Paint(w, "31", "failed"), r.Failure
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Name, state, command.PlainName(r.How), command.PlainName(said))
	}
	_ = table.Flush()
}
