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
		Short: "Remove everything of Sluice from the kernel",
		Long: `Removes all rules and sets of Sluice from the kernel and restores the sysctls that it changed.
The host is then open except for the rules of other tools, after a reboot too. The history
stays: sluice rollback GENERATION brings a policy back.

It asks on a terminal; elsewhere it needs --yes.
` + filesHelp + `

Exit status: 0 removed, 1 answered no, 2 bad use, or it failed.`,
		Example: "  sluice remove\n  sluice remove --yes --netns customer7",
		Args:    cobra.NoArgs,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, _ []string) error {
			// Where nothing is there to be removed, there is nothing to ask.
			now, statusErr := h.Status(ctx, false)
			nothing := statusErr == nil && now.Condition == apply.Nothing && now.Boot == 0 && now.Lost == ""
			if !nothing {
				if err := agreed(cmd, "remove all rules of Sluice, and leave the host open?", "this opens the host"); err != nil {
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
		return errors.New(what + "\nhint: --yes does it without asking")
	}
	w, done := terminal(cmd)
	defer done()
	fmt.Fprint(w, question+" [y/N] ")
	if a := readLine(cmd.InOrStdin()); a != "y" && a != "Y" && a != "yes" {
		return command.Found("nothing changed")
	}
	return nil
}
