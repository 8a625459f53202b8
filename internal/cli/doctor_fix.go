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

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/doctor"
	"sluice/internal/engine/apply"
)

// fixJSON is what came of a fix.
type fixJSON struct {
	Check  string           `json:"check"`
	Before []doctor.Finding `json:"before"`
	Tuned  *apply.Tuned     `json:"tuned,omitempty"` // nil: there was nothing to set
	After  []doctor.Finding `json:"after"`           // by the examination behind it; none: it is gone
}

// tunedFor is what the settings of a check are set for: those of the connection table are
// planned and taken back together.
func tunedFor(id string) string {
	if strings.HasPrefix(id, "table-") {
		return apply.TuneTable
	}
	return id
}

// undoText is the command that takes a fix back once it is kept.
func undoText(cmd *cobra.Command, id string) string {
	if tunedFor(id) == apply.TuneTable {
		return "sluice conntrack tune revert" + command.HereArguments(cmd)
	}
	return "sluice doctor --undo " + id + command.HereArguments(cmd)
}

// known finds a check by its id.
func known(id string) (*doctor.Check, error) {
	c, near := doctor.Explain(id)
	if c != nil {
		return c, nil
	}
	hint := "sluice doctor --list names all of them"
	if near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return nil, fmt.Errorf("no such check: %q\nhint: %s", id, hint)
}

// defaultFixConfirm is how long a fix waits for confirmation.
const defaultFixConfirm = time.Minute

// fixFinding fixes what a check finds, on trial, and looks again.
func fixFinding(ctx context.Context, cmd *cobra.Command, id string, o doctor.Options) error {
	c, err := known(id)
	if err != nil {
		return err
	}
	confirm, err := confirmTime(cmd)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("confirm") && !given(cmd, "no-confirm") {
		confirm = defaultFixConfirm
	}
	out := fixJSON{Check: c.ID, After: []doctor.Finding{}}
	if out.Before, err = findings(ctx, cmd, c.ID, o); err != nil {
		return err
	}
	to := cmd.OutOrStdout()
	if optionsOf(cmd).json {
		to = io.Discard
	}
	for _, f := range out.Before {
		printIllness(to, f)
	}
	if len(out.Before) == 0 {
		return answer(cmd, out, false, func(w io.Writer) { fmt.Fprintf(w, "%s finds nothing to fix\n", c.ID) })
	}
	in := apply.Tuning{For: tunedFor(c.ID), Confirm: confirm, Persist: given(cmd, "persist")}
	for _, f := range out.Before {
		for _, s := range f.Settings {
			if n := (apply.Setting{Name: s.Name, Value: s.To}); !slices.Contains(in.Settings, n) {
				in.Settings = append(in.Settings, n)
			}
		}
	}
	switch why := c.Unfixed(); {
	case why != "":
		return command.Found(fmt.Sprintf("%s has no automatic fix: %s", c.ID, why))
	case len(in.Settings) == 0:
		return command.Found(c.ID + " has no setting to change: all are as they should be")
	}
	for _, s := range in.Settings {
		fmt.Fprintf(to, "will set: %s = %s\n", s.Name, s.Value)
	}
	if confirm > 0 {
		fmt.Fprintf(to, "returns to the old values after %s unless confirmed; later undo it by: %s\n", english.Duration(confirm), undoText(cmd, c.ID))
	} else {
		fmt.Fprintf(to, "undo it by: %s\n", undoText(cmd, c.ID))
	}
	if err := agreed(cmd, "set this?", "settings of the machine change"); err != nil {
		return err
	}
	h, err := doorOf(cmd)
	if err != nil {
		return err
	}
	o.Since = time.Now()
	if out.Tuned, err = h.Tune(ctx, in); err != nil {
		return err
	}
	if out.After, err = findings(ctx, cmd, c.ID, o); err != nil {
		return err
	}
	if optionsOf(cmd).json {
		return answer(cmd, out, len(out.After) > 0, nil)
	}
	w := cmd.OutOrStdout()
	if len(out.After) == 0 {
		fmt.Fprintf(w, "fixed: %s finds nothing any more\n", c.ID)
	}
	for _, f := range out.After {
		fmt.Fprintf(w, "not fixed: %s\n", f.Text)
	}
	return errors.Join(keepFix(ctx, cmd, h, out.Tuned), stillThere(out.After))
}

// stillThere is the exit status of a fix that did not help.
func stillThere(after []doctor.Finding) error {
	if len(after) > 0 {
		return command.ErrFound
	}
	return nil
}

// keepFix asks whether settings are to stay, or says what keeps them.
func keepFix(ctx context.Context, cmd *cobra.Command, h door, t *apply.Tuned) error {
	w := cmd.OutOrStdout()
	if t.Pending == nil || !onTerminal(cmd) {
		printTuned(w, cmd, t)
		return nil
	}
	return askToKeep(ctx, cmd, w, h, trial{
		what: "these settings", back: "what was before", pending: t.Pending,
		ended: func() bool { return false }, // whoever answers is told
		refuse: func() error {
			back, err := h.Untune(context.Background(), apply.Untuning{Trial: true})
			if err != nil {
				return err
			}
			printUntuned(w, back)
			return command.Found("not confirmed: the old values are set again")
		},
	})
}

// findings examines the host, and gives those of one check.
func findings(ctx context.Context, cmd *cobra.Command, id string, o doctor.Options) ([]doctor.Finding, error) {
	stop := tellWaiting(cmd, o.Window)
	report, err := doctor.Examine(ctx, o)
	stop()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(report.Findings, func(f doctor.Finding) bool { return f.Check != id }), nil
}

// undoFix takes back what was set for a check.
func undoFix(ctx context.Context, cmd *cobra.Command, id string) error {
	if _, err := known(id); err != nil {
		return err
	}
	h, err := doorOf(cmd)
	if err != nil {
		return err
	}
	out, err := h.Untune(ctx, apply.Untuning{For: tunedFor(id)})
	if err != nil {
		return err
	}
	return answer(cmd, out, false, func(w io.Writer) { printUntuned(w, out) })
}
