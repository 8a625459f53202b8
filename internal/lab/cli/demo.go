package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/cli/command"
	"sluice/internal/lab/demo"
)

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Sluice at work on real packets",
		Long: `Plays the only-Europe example in network namespaces, with country data and packets; run it in the
root of the source tree ("make demo"). On a terminal it then shows the host and the fleet in a
browser until you press a key. With --json the output goes to standard error.

Exit status: 0 everything as expected, 1 something was not, 2 bad use, or it could not be played, 130
interrupted.`,
		Example: `  sluice-lab demo
  sluice-lab demo --picture demo.svg`,
		Args: cobra.NoArgs,
		RunE: runDemo,
	}
	addScene(cmd)
	cmd.Flags().String("picture", "", "write a picture (SVG) of the output to `FILE`")
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
	if in, is := cmd.InOrStdin().(*os.File); is && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(o.Out.Fd())) {
		o.Stay = func() error { return awaitKey(ctx, in) }
	}
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

// awaitKey waits until a key is pressed on a terminal.
func awaitKey(ctx context.Context, in *os.File) error {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(int(in.Fd()), before) }()
	key := make(chan error, 1)
	go func() {
		_, err := in.Read(make([]byte, 1))
		key <- err
	}()
	select {
	case err = <-key:
	case <-ctx.Done():
	}
	return err
}
