package process

import (
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// AtEnd starts a shell that runs a script in a session of its own, with the arguments and
// open files given to it. The kernel ends its input when this process is gone, by whatever
// end, or when the caller closes it; so a script that waits for that fixes what a killed
// process leaves. Signals that end a session do not end one that ignores them.
func AtEnd(shell, script string, args []string, files ...*os.File) (input io.WriteCloser, cmd *exec.Cmd, err error) {
	cmd = exec.Command(shell, append([]string{"-c", script, "sh"}, args...)...)
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if input, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	return input, cmd, err
}

type heldKey struct{}

// Held lets the programs that a backend runs with the context hold open files too, such
// as a lock that is to stand until the last of them has ended. What files gives is asked
// at each start; no other program that this process starts has them.
func Held(ctx context.Context, files func() []*os.File) context.Context {
	return context.WithValue(ctx, heldKey{}, files)
}

// HeldFiles are the files of Held, for whoever starts such a program.
func HeldFiles(ctx context.Context) []*os.File {
	if files, is := ctx.Value(heldKey{}).(func() []*os.File); is {
		return files()
	}
	return nil
}
