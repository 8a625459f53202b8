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
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := command.Netns(cmd)
		if name == "" {
			return run(cmd, args)
		}
		space, err := command.OpenNetns(name)
		if err != nil {
			return err
		}
		defer space.Close()
		entered := false
		err = space.Do(func() error {
			entered = true
			return run(cmd, args)
		})
		if !entered {
			err = command.NotEntered(err)
		}
		return err
	}
}
