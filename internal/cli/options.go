package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// options are the flags that every command has.
type options struct {
	json     bool
	stateDir string // policies, history, country data
	netns    string // "" is the namespace of the caller
}

func optionsOf(cmd *cobra.Command) options {
	return options{json: command.JSON(cmd), stateDir: command.StateDir(cmd), netns: command.Netns(cmd)}
}

// given says whether a flag of yes or no is; a command that has no such flag was given none.
func given(cmd *cobra.Command, flag string) bool {
	is, _ := cmd.Flags().GetBool(flag)
	return is
}

// onHost is what a command does on the host, or the namespace, that its flags name; Ctrl-C
// and SIGTERM end ctx.
func onHost(run func(ctx context.Context, cmd *cobra.Command, h door, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := command.Interruptible(cmd)
		defer stop()
		h, err := doorOf(cmd)
		if err != nil {
			return err
		}
		return run(ctx, cmd, h, args)
	}
}

// answer prints what was asked for, as JSON or as text, and ends with ErrFound where that is
// something to look at.
func answer(cmd *cobra.Command, v any, found bool, text func(w io.Writer)) error {
	w := cmd.OutOrStdout()
	if !optionsOf(cmd).json {
		text(w)
	} else if err := command.PrintJSON(w, v); err != nil {
		return err
	}
	if found {
		return command.ErrFound
	}
	return nil
}
