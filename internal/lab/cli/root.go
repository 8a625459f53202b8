package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
)

// Main runs one command line and returns the exit status.
func Main(args []string) int { return command.Main(Root(), args) }

// Root makes the whole command tree.
func Root() *cobra.Command {
	root := command.Root(&cobra.Command{
		Use:   "sluice-lab",
		Short: "Measure and test the firewall sluice, and replay incidents",
		Long: `Measures what packets and changes cost under Sluice and under other tools, puts load on web servers,
replays incidents, and runs all of it on other kernels. It works in network namespaces and emulated
machines of its own, with the program sluice in its own directory or else the first in PATH. You do
not need it to protect a host.

With --json every command prints one JSON value on standard output. If it fails before that, the value
has the keys "error" and "exit-status".

Exit status: 0 fine, 1 found something, 2 bad use or bad input, 130 interrupted.`,
		Example: `  sluice-lab bench packet --html page.html
  sluice-lab load http://192.0.2.10/ --connections 200
  sluice-lab story list`,
	})
	command.HostFlags(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return enterNetns(command.Netns(cmd)) }
	command.AddGroups(root,
		command.Group{Title: "Measure", Commands: []*cobra.Command{newBench(), newLoad(), newKernels()}},
		command.Group{Title: "Test", Commands: []*cobra.Command{newStress(), newDoctor()}},
		command.Group{Title: "Replay and show", Commands: []*cobra.Command{newStory(), newDemo(), newPage()}},
	)
	root.AddCommand(command.NewCompletion("sluice-lab"), command.NewVersion("sluice-lab"))
	tellInterrupted(root)
	return root
}

// tellInterrupted makes a command that ends because its context was cancelled, and all
// below it, say so by their exit status.
func tellInterrupted(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		tellInterrupted(below)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if errors.Is(err, context.Canceled) {
			return command.ErrInterrupted
		}
		return err
	}
}

// theSluice is the program that is measured.
func theSluice() (string, error) { return theProgram("sluice") }

// theProgram is the one of this name beside this program, or else the first in PATH.
func theProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
		return beside, nil
	}
	found, err := exec.LookPath(name)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return "", fmt.Errorf("find the program that is measured: %w\nhint: put %s into the directory of sluice-lab, or of PATH", err, name)
	}
	return found, nil
}
