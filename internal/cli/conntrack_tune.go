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
The size is what the doctor recommends: room for twice the new connections of a second times
the seconds that an entry lives, which are reckoned from the table or given with --expect.
A policy that says "tracking: {table: …}" sets these itself, and tune is refused.
`

func newConntrackTune() *cobra.Command {
	var w engine.TableWish
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Say how large the connection table should be, and what that costs",
		Long: `Prints the plan: each setting as it is and as it should be, why, and the memory. It
changes nothing; "tune apply" does it, and "tune revert" takes it back.
` + tuneHelp + `
Exit status: 0 the table may stay as it is, 1 there is something to change, or it is refused,
2 bad use, or nothing tracks connections.`,
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
	flags.String("expect", "", "new connections that the table is to bear, as `N/s`")
	flags.Uint64Var(&w.Max, "max", 0, "give it room for `N` entries, whatever is reckoned")
	command.AddTime(flags, "time-wait", 0, "keep entries of closed connections for `TIME`, which makes the table smaller")
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
		Short: "Set the size of the connection table, and remember what it was",
		Long: `Sets what "sluice conntrack tune" plans, and keeps what was before for "tune revert". Where
one setting cannot be set, none is; what a command leaves that is killed midway goes back
with the next command. A table is never made smaller than what is in use.

It asks on a terminal; elsewhere --yes is needed. With --confirm the settings go back by
themselves after the given time unless "sluice confirm" comes, even when this command is
gone by then. --persist has the next boots set them, once they are kept.
` + tuneHelp + `
Files: the state is kept in /var/lib/sluice (--state-dir, SLUICE_STATE_DIR). --persist
writes /etc/sysctl.d/60-sluice.conf, /etc/modules-load.d/sluice.conf and, for the
buckets, /etc/modprobe.d/sluice.conf.

Exit status: 0 set, or nothing to change, 1 refused, or not confirmed at the question, 2 bad
use, or it failed: nothing changed then.`,
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
	command.AddTime(flags, "confirm", 0, "bring back what was before unless confirmed within `TIME`")
	flags.Bool("persist", false, "have the next boots set it too")
	flags.Bool("force", false, "also where the table may take more than half of the free memory")
	flags.Bool("yes", false, "do not ask")
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

func newConntrackTuneRevert() *cobra.Command {
	var u apply.Untuning
	cmd := &cobra.Command{
		Use:   "revert",
		Short: "Take back what tune has set",
		Long: `Sets the settings of the connection table back to what they were before "tune apply", and
takes back the files of --persist. What somebody else has set since stays.

Exit status: 0 done, or nothing was set, 1 refused, since the table has more entries than it
had room for, 2 bad use, or it failed.`,
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
	cmd.Flags().BoolVar(&u.Force, "force", false, "also where the table has more entries than it had room for")
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
	how := "from the kernel's slab"
	if !p.Measured {
		how = "assumed, because /proc/slabinfo could not be read"
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
		fmt.Fprintln(w, "nothing can be set from here")
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
		fmt.Fprintf(w, "it goes back in %s unless you run: sluice confirm%s\n", leftText(out.Pending), command.HereArguments(cmd))
	}
}

func printUntuned(w io.Writer, out *apply.Tuned) {
	for _, t := range out.Settings {
		fmt.Fprintf(w, "%s is %s again\n", t.Name, t.Old)
	}
	if len(out.Settings) == 0 {
		fmt.Fprintln(w, "nothing to take back")
	}
}
