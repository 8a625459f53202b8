// Package tool finds and runs programs of the machine. What runs nft, iptables-save and
// getent calls it.
package tool

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// folders are where distributions keep the administrator's programs. The PATH of
// ordinary users, of su, of cron and of some services lacks them.
var folders = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// grace is how long the output of a program may stay open once it has ended or was
// killed: a program that it left behind may hold it for ever.
const grace = 2 * time.Second

// Path is where a program is: in PATH, else among the administrator's.
func Path(name string) (string, error) {
	found, err := exec.LookPath(name)
	for _, folder := range folders {
		if err == nil {
			break
		}
		if there, missing := exec.LookPath(folder + "/" + name); missing == nil {
			found, err = there, nil
		}
	}
	return found, err
}

// Command is a program that ends with the context. Run it with [Run].
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if path, err := Path(name); err == nil {
		name = path
	}
	return exec.CommandContext(ctx, name, args...) // which says what is missing
}

// Run runs a command until it has ended, whatever it left running. The error is that of
// [exec.Cmd.Run].
func Run(cmd *exec.Cmd) error {
	cmd.WaitDelay = grace
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // it ended well itself
	}
	return err
}
