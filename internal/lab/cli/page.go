package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/demo"
)

func newPage() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page COMMAND [ARGUMENT]...",
		Short: "Run a command on a host and a fleet that packets come to",
		Long: `Makes, in network namespaces, a host with an agent that runs the only-Europe example, a
controller with five hosts, and packets of many countries to all of them; then runs a command,
such as the tests of the page, in whose environment SLUICE_SCENE says in JSON where all that is.
All is gone when the command ends.

Environment: SLUICE_SCENE and PATH, in which the programs come first, for the command.
Exit status: 0 the command had that, 1 another one, 2 bad use, or the scene could not be made, 130 interrupted.`,
		Example: `  sluice-lab page node --test web/test`,
		Args:    cobra.MinimumNArgs(1),
		RunE:    runPage,
	}
	addScene(cmd)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// addScene adds what the demo and the page are made of.
func addScene(cmd *cobra.Command) {
	cmd.Flags().String("policy", "examples/only-europe/policy.yaml", "apply the policy in `FILE`")
	cmd.Flags().String("data", treeCountries, "country data as CSV in `DIR`")
	command.Must(cmd.MarkFlagDirname("data"))
}

// sceneOf is what the flags say of it.
func sceneOf(cmd *cobra.Command) (o demo.Options, err error) {
	o.Policy, _ = cmd.Flags().GetString("policy")
	o.Data, _ = cmd.Flags().GetString("data")
	o.Binary, err = theSluice()
	return o, err
}

func runPage(cmd *cobra.Command, args []string) error {
	o, err := sceneOf(cmd)
	if err != nil {
		return err
	}
	if o.Out, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		return err
	}
	defer o.Out.Close()
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	var ended error
	err = demo.Show(o, func(s demo.Scene) error {
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.Env = append(os.Environ(), "SLUICE_SCENE="+string(text), "PATH="+filepath.Dir(o.Binary)+":"+os.Getenv("PATH"))
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		ended = c.Run()
		return nil
	})
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && errors.As(ended, &exit):
		return command.Found(fmt.Sprintf("%s: %s", args[0], exit))
	}
	return errors.Join(err, ended)
}
