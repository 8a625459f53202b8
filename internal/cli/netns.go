package cli

import (
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// insideNetns lets a command and all below it run inside of the network namespace that
// --netns names.
func insideNetns(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		insideNetns(c)
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			return inside(command.Netns(cmd), func() error { return run(cmd, args) })
		}
	}
	if complete := cmd.ValidArgsFunction; complete != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) (words []string, how cobra.ShellCompDirective) {
			how = cobra.ShellCompDirectiveNoFileComp
			_ = inside(command.Netns(cmd), func() error { words, how = complete(cmd, args, begun); return nil })
			return words, how
		}
	}
}

func inside(name string, f func() error) error {
	if name == "" {
		return f()
	}
	space, err := command.OpenNetns(name)
	if err != nil {
		return err
	}
	defer space.Close()
	entered := false
	err = space.Do(func() error {
		entered = true
		return f()
	})
	if !entered {
		err = command.NotEntered(err)
	}
	return err
}
