package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Take everything of Sluice's out of the kernel",
		Long: `Takes all rules and sets of Sluice's out of the kernel and sets the sysctls that
it changed back. The host is then open as far as other tools leave it so, at boot
too. The history stays: sluice rollback GENERATION brings a policy back.

It asks on a terminal; elsewhere --yes is needed.
` + filesHelp + `

Exit status: 0 removed, 1 not confirmed at the question, 2 bad use, or it failed.`,
		Example: "  sluice remove\n  sluice remove --yes --netns customer7",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			// Where nothing is there to be removed, there is nothing to ask.
			now, statusErr := h.Status(ctx, false)
			nothing := statusErr == nil && now.Condition == apply.Nothing && now.Boot == 0 && now.Lost == ""
			if !nothing {
				if err := agreed(cmd, "take all rules of sluice away, and leave the host open?", "this opens the host"); err != nil {
					return err
				}
			}
			out, err := h.Remove(ctx)
			if err != nil {
				return err
			}
			if out.Unchanged && !optionsOf(cmd).json {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove: no policy runs")
				return nil
			}
			return printApplied(ctx, cmd, h, out, false)
		}),
	}
	cmd.Flags().Bool("yes", false, "do not ask")
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

// agreed asks on a terminal whether something is to be done; what says what that does.
func agreed(cmd *cobra.Command, question, what string) error {
	if given(cmd, "yes") {
		return nil
	}
	if !onTerminal(cmd) {
		return errors.New(what + "\nhint: give --yes to do it without being asked")
	}
	w, done := terminal(cmd)
	defer done()
	fmt.Fprint(w, question+" [y/N] ")
	if a := readLine(cmd.InOrStdin()); a != "y" && a != "Y" && a != "yes" {
		return command.Found("nothing changed")
	}
	return nil
}
