// Package tool finds and runs programs of the machine. What runs nft, iptables-save and
// getent calls it.
package tool

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// folders are where distributions keep the administrator's programs. The PATH of
// ordinary users, of su, of cron and of some services lacks them.
var folders = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// grace is how long the input of a program may stay open once it has ended or was
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

// Run runs a command until it has ended, whatever it left running, and writes all that
// it has printed itself to the two writers. The error is that of [exec.Cmd.Run].
func Run(cmd *exec.Cmd) error {
	cmd.WaitDelay = grace
	var ended []func() error
	for _, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		if *to == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		defer r.Close()
		defer w.Close()
		ended = append(ended, copying(*to, r))
		*to = w
	}
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well itself
	}
	for _, rest := range ended {
		if failed := rest(); err == nil {
			err = failed
		}
	}
	return err
}

// copying copies what comes through a pipe until it is told that all of it is in there.
// Whatever holds the other end is not waited for, and no clock says when all was read: on
// a busy machine that may be long after the end of the program.
func copying(to io.Writer, from *os.File) (rest func() error) {
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, from)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = from.Close() // who prints on is told
		}
		copied <- err
	}()
	return func() error {
		_ = from.SetReadDeadline(time.Now())
		if err := <-copied; !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		_ = from.SetReadDeadline(time.Time{})
		left, err := unix.IoctlGetInt(int(from.Fd()), unix.TIOCINQ) // FIONREAD of pipes
		if err == nil {
			_, err = io.CopyN(to, from, int64(left))
		}
		return err
	}
}
