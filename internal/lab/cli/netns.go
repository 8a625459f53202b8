package cli

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"sluice/internal/cli/command"
	"sluice/internal/system/kernel/netns"
)

// enterNetns puts the whole process into a network namespace: one thread enters it and
// replaces the process. A command of sluice runs on a thread inside instead; that does not
// do for a load: a socket is of the namespace of the thread that opens it, and its workers
// open their connections on whichever thread they run on. Each of them would take a thread
// of its own to enter, for every new connection again, and pay for it in what is measured.
// Who is inside already goes on.
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
