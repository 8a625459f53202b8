package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

func newRollback() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback [GENERATION]",
		Short: "Go back to the policy before, or to a generation of the history",
		Long: `Goes back to the policy before, or to the generation that you name. It needs neither the
policy's files nor country data nor a network: a generation holds everything. A policy that
waits for confirmation is given up. The closed policy, which a failed restore loads, is skipped.

The policy's file keeps its text: "sluice history N >FILE" writes that of a generation into it.
After "sluice rollback N" there is nothing before N to go back to but by its number.

As with apply, a policy that would lock out somebody who is logged in is refused without --force,
and with it has to be confirmed; --confirm restores what runs now unless confirmed. On a
terminal over ssh --confirm is the default when you name a generation.
` + filesHelp + `

Exit status: 0 done; 1 refused or not confirmed; 2 nothing to go back to, or loading failed and
the running policy stays.`,
		Example: "  sluice rollback\n  sluice history\n  sluice rollback 7 --confirm 60s",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: completeGeneration,
		RunE: onHost(func(ctx context.Context, cmd *cobra.Command, h door, args []string) error {
			n := apply.Before
			if len(args) > 0 {
				var err error
				if n, err = strconv.Atoi(args[0]); err != nil || n < 1 {
					return noGeneration(cmd, args[0])
				}
			}
			o, ask, err := applyOptions(cmd)
			if err != nil {
				return err
			}
			if n == apply.Before && !cmd.Flags().Changed("confirm") {
				o.Confirm = 0 // what ran before is the known good
			}
			out, err := h.Rollback(ctx, n, o)
			if err != nil {
				return err
			}
			if filepath.IsAbs(out.Policy) {
				name := command.PlainName(command.ShellWord(out.Policy))
				out.Notes = append(out.Notes, fmt.Sprintf("%s was not changed, and the next apply would load it; to write this policy there: sluice history%s %d >%s", name, command.HereArguments(cmd), out.Generation, name))
			}
			return printApplied(ctx, cmd, h, out, ask)
		}),
	}
	flags := cmd.Flags()
	command.AddTime(flags, "confirm", 0, "restore what runs now unless confirmed within `TIME`")
	flags.Bool("no-confirm", false, "keep it at once, without confirmation, even if it locks somebody out")
	flags.Bool("force", false, "go back even if that locks somebody out")
	flags.Bool("no-verify", false, "do not read the rules back")
	cmd.MarkFlagsMutuallyExclusive("confirm", "no-confirm")
	addMessage(cmd)
	addWait(cmd)
	return cmd
}
