package cli

import (
	"context"
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
	"sluice/internal/lab/fleetbench"
)

func newPage() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page COMMAND [ARGUMENT]...",
		Short: "Run a command on a host and a fleet that receive packets",
		Long: `Makes, in network namespaces, a host with an agent that runs the only-Europe example, a controller with
five hosts, and packets of many countries to all of them; then runs a command, such as the browser
tests, with SLUICE_SCENE describing all of it in JSON. Everything is deleted when the command ends.
With --agents it makes the fleet of "bench fleet" instead.

Environment: for the command, SLUICE_SCENE, and PATH with the programs first.
Exit status: 0 the command ended with 0, 1 with another status, 2 bad use, or the scene could not be
made, 130 interrupted.`,
		Example: `  sluice-lab page node --test web/test`,
		Args:    cobra.MinimumNArgs(1),
		RunE:    runPage,
	}
	addScene(cmd)
	flags := cmd.Flags()
	flags.Int("packets", 0, "send `N` more packets a second, each of which a host drops and logs")
	flags.Int("agents", 0, "make a fleet of `N` agents, most of them simulated, without packets")
	flags.Int("rows", 0, "add hosts that never connected, up to `N` in all, to the fleet of --agents")
	flags.SetInterspersed(false)
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
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	var ended error
	act := func(scene any) error {
		text, err := json.Marshal(scene)
		if err != nil {
			return err
		}
		program, err := theSluice()
		if err != nil {
			return err
		}
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.Env = append(os.Environ(), "SLUICE_SCENE="+string(text), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		ended = c.Run()
		return nil
	}
	err := setScene(ctx, cmd, act)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && errors.As(ended, &exit):
		return command.Found(fmt.Sprintf("%s: %s", args[0], exit))
	}
	return errors.Join(err, ended)
}

// setScene makes what the flags ask for, for as long as act takes.
func setScene(ctx context.Context, cmd *cobra.Command, act func(any) error) error {
	flags := cmd.Flags()
	if agents, _ := flags.GetInt("agents"); agents > 0 {
		rows, _ := flags.GetInt("rows")
		o := fleetbench.Options{Seed: 1}
		if err := fleetPrograms(&o); err != nil {
			return err
		}
		return fleetbench.Stand(ctx, o, agents, rows, func(s fleetbench.Standing) error {
			return act(map[string]any{"fleet": s})
		})
	}
	o, err := sceneOf(cmd)
	if err != nil {
		return err
	}
	o.Packets, _ = flags.GetInt("packets")
	if o.Out, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		return err
	}
	defer o.Out.Close()
	return demo.Show(o, func(s demo.Scene) error { return act(s) })
}
