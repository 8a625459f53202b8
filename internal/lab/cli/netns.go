package cli

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"sluice/internal/cli/command"
	"sluice/internal/system/kernel/netns"
)

// enterNetns puts the whole process into a network namespace: one thread enters it and
// replaces the process, so that every connection of a load is opened inside, on whichever
// thread, at no cost of its own. Who is inside already goes on.
func enterNetns(name string) error {
	if name == "" {
		return nil
	}
	space, err := command.OpenNetns(name)
	if err != nil {
		return err
	}
	defer space.Close()
	here, err := netns.Here()
	if err != nil {
		return err
	}
	defer here.Close()
	if here.Number() == space.Number() {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return command.NotEntered(space.Do(func() error { return unix.Exec(program, os.Args, os.Environ()) }))
}
