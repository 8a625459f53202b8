package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/demo"
)

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Sluice at work on real packets",
		Long: `Plays the only-Europe example in network namespaces, with country data and packets:
"make demo" in the source tree, in whose root it works. With --json it is shown on
standard error.

Exit status: 0 all was seen as expected, 1 something was not, 2 bad use, or it could
not be played, 130 interrupted.`,
		Example: `  sluice-lab demo
  sluice-lab demo --picture demo.svg`,
		Args: cobra.NoArgs,
		RunE: runDemo,
	}
	addScene(cmd)
	cmd.Flags().String("picture", "", "write a picture (SVG) of what was printed into `FILE`")
	return cmd
}

func runDemo(cmd *cobra.Command, _ []string) (err error) {
	o, err := sceneOf(cmd)
	if err != nil {
		return err
	}
	o.Out = os.Stdout // with styles of its own
	if command.JSON(cmd) {
		o.Out = os.Stderr
	}
	o.Picture, _ = cmd.Flags().GetString("picture")
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	r, err := demo.Play(o)
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // the networks closed themselves, so whatever ran in them failed
	case err != nil:
		return err
	case len(r.Wrong) > 0:
		err = command.ErrFound
	}
	if command.JSON(cmd) {
		err = errors.Join(command.PrintJSON(cmd.OutOrStdout(), r), err)
	}
	return err
}
