package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

const tuneHelp = `
The size is what the doctor recommends: room for twice the new connections a second times the
seconds that an entry lives, estimated from the table or given with --expect. If the policy
says "tracking: {table: …}", the policy sets the size, and tune refuses.
`

func newConntrackTune() *cobra.Command {
	var w engine.TableWish
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Show how large the connection table should be, and what that costs",
		Long: `Prints the plan: each setting as it is and as it should be, why, and the memory that it
takes. It changes nothing; "tune apply" applies the plan, and "tune revert" undoes it.
` + tuneHelp + `
Exit status: 0 nothing to change; 1 something to change, or refused; 2 bad use, or nothing
tracks connections.`,
		Example: "  sluice conntrack tune --expect 20000/s\n  sluice conntrack tune apply --expect 20000/s --persist\n  sluice conntrack tune revert",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			p, err := planTable(ctx, cmd, h, &w)
			if err != nil {
				return err
			}
			return answer(cmd, p, len(p.Settings)+len(p.Left) > 0, func(w io.Writer) { printTablePlan(w, cmd, p) })
		}),
	}
	addWish(cmd, &w)
	cmd.AddCommand(newConntrackTuneApply(), newConntrackTuneRevert())
	return cmd
}

func addWish(cmd *cobra.Command, w *engine.TableWish) {
	flags := cmd.Flags()
	flags.String("expect", "", "make room for `N/s` new connections a second")
	flags.Uint64Var(&w.Max, "max", 0, "make room for `N` entries, whatever the estimate")
	command.AddTime(flags, "time-wait", 0, "keep entries of closed connections for `TIME`; a shorter time needs a smaller table")
}

func planTable(ctx context.Context, cmd *cobra.Command, h door, w *engine.TableWish) (*engine.TablePlan, error) {
	if text, _ := cmd.Flags().GetString("expect"); text != "" {
		var err error
		if w.Expect, err = expected(text); err != nil {
			return nil, err
		}
	}
	w.TimeWait = uint64(command.TimeOf(cmd.Flags(), "time-wait").Seconds())
	return h.PlanTable(ctx, *w)
}

func newConntrackTuneApply() *cobra.Command {
	var w engine.TableWish
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Set the size of the connection table",
		Long: `Sets what "sluice conntrack tune" plans, and keeps the old values for "tune revert". If one
setting cannot be set, none is; if the command is killed midway, the next command restores the
old values. The table is never made smaller than what is in use.

It asks on a terminal; elsewhere it needs --yes. With --confirm the old values return after
the given time unless "sluice confirm" is run, even if this command is gone by then. With
--persist they are also set at boot, once they are kept.
` + tuneHelp + `
Files: the state is kept in /var/lib/sluice (--state-dir, SLUICE_STATE_DIR). --persist
writes /etc/sysctl.d/60-sluice.conf, /etc/modules-load.d/sluice.conf and, for the
buckets, /etc/modprobe.d/sluice.conf.

Exit status: 0 set, or nothing to change; 1 refused, or answered no; 2 bad use, or it failed
and nothing changed.`,
		Example: "  sluice conntrack tune apply --expect 20000/s\n  sluice conntrack tune apply --max 1048576 --persist --yes",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			p, err := planTable(ctx, cmd, h, &w)
			if err != nil {
				return err
			}
			in := apply.Tuning{For: apply.TuneTable, Persist: given(cmd, "persist"), Force: given(cmd, "force")}
			if in.Confirm, err = confirmTime(cmd); err != nil {
				return err
			}
			for _, s := range p.Settings {
				in.Settings = append(in.Settings, apply.Setting{Name: s.Name, Value: s.To})
			}
			if !optionsOf(cmd).json {
				printTablePlan(cmd.OutOrStdout(), cmd, p)
			}
			if len(in.Settings) == 0 && (!in.Persist || len(p.Tuned.Settings) == 0) {
				return answer(cmd, p.Tuned, len(p.Left) > 0, func(io.Writer) {})
			}
			if err := agreed(cmd, "set this?", "settings of the machine change"); err != nil {
				return err
			}
			out, err := h.Tune(ctx, in)
			if err != nil {
				return err
			}
			return answer(cmd, out, false, func(w io.Writer) { printTuned(w, cmd, out) })
		}),
	}
	addWish(cmd, &w)
	flags := cmd.Flags()
	command.AddTime(flags, "confirm", 0, "restore the old values unless confirmed within `TIME`")
	flags.Bool("persist", false, "have the next boots set it too")
	flags.Bool("force", false, "even if the table may take more than half of the free memory")
	flags.Bool("yes", false, "do not ask")
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

func newConntrackTuneRevert() *cobra.Command {
	var u apply.Untuning
	cmd := &cobra.Command{
		Use:   "revert",
		Short: "Undo what tune has set",
		Long: `Restores the settings of the connection table from before "tune apply", and removes the files
of --persist. Values that somebody else has set since stay.

Exit status: 0 done, or nothing was set; 1 refused, since the table has more entries than
would fit; 2 bad use, or it failed.`,
		Example: "  sluice conntrack tune revert",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			u.For = apply.TuneTable
			out, err := h.Untune(ctx, u)
			if err != nil {
				return err
			}
			return answer(cmd, out, false, func(w io.Writer) { printUntuned(w, out) })
		}),
	}
	cmd.Flags().BoolVar(&u.Force, "force", false, "even if the table has more entries than would fit")
	addWait(cmd)
	return cmd
}

func printTablePlan(w io.Writer, cmd *cobra.Command, p *engine.TablePlan) {
	fmt.Fprintf(w, "%s entries of %s, %s buckets; %s new connections a second, %d s behind a closed one\n",
		english.Grouped(p.Entries), english.Grouped(p.Most), english.Grouped(p.Buckets), english.Grouped(uint64(p.Rate)), p.Lifetime)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range p.Settings {
		fmt.Fprintf(table, "%s\t%s\t-> %s\t%s\n", s.Name, s.Now, s.To, s.Why)
	}
	_ = table.Flush()
	for _, l := range p.Left {
		fmt.Fprintf(w, "left out: %s\n", l)
	}
	fmt.Fprintf(w, "memory: %s now, at most %s", apply.Bytes(p.Memory), apply.Bytes(p.MemoryMost))
	if p.MemoryThen != p.MemoryMost && len(p.Settings) > 0 {
		fmt.Fprintf(w, ", then at most %s", apply.Bytes(p.MemoryThen))
	}
	how := "from /proc/slabinfo"
	if !p.Measured {
		how = "the usual size, since /proc/slabinfo could not be read"
	}
	fmt.Fprintf(w, "; %d bytes an entry, %s\n", p.EntryBytes, how)
	if p.Shorter > 0 {
		fmt.Fprintf(w, "with --time-wait 30s room for %s entries is enough\n", english.Grouped(p.Shorter))
	}
	for _, u := range p.Unread {
		fmt.Fprintf(w, "not read: %s\n", u)
	}
	for _, t := range p.Tuned.Settings {
		fmt.Fprintf(w, "set before: %s = %s, was %s\n", t.Name, t.New, t.Old)
	}
	switch {
	case len(p.Left) > 0 && len(p.Settings) == 0:
		fmt.Fprintln(w, "no setting can be changed from here")
	case len(p.Settings) == 0:
		fmt.Fprintln(w, "nothing to change")
	}
}

func printTuned(w io.Writer, cmd *cobra.Command, out *apply.Tuned) {
	for _, t := range out.Settings {
		fmt.Fprintf(w, "%s is %s, was %s\n", t.Name, t.New, t.Old)
	}
	for _, f := range out.Files {
		fmt.Fprintf(w, "/etc/%s has it for the next boot\n", f)
	}
	if out.Pending != nil {
		fmt.Fprintf(w, "the old values return in %s unless you run: sluice confirm%s\n", leftText(out.Pending), command.HereArguments(cmd))
	}
}

func printUntuned(w io.Writer, out *apply.Tuned) {
	for _, t := range out.Settings {
		fmt.Fprintf(w, "%s is %s again\n", t.Name, t.Old)
	}
	if len(out.Settings) == 0 {
		fmt.Fprintln(w, "nothing to undo")
	}
}
