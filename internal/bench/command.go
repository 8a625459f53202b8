package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"sluice/internal/measure"
)

// ran is one run of a program.
type ran struct {
	output string // standard output
	wall   time.Duration
	cpu    time.Duration // of the program and the children that it waited for
}

// start prepares a program that dies with this one. The variable SSH_CONNECTION
// is not passed on: nobody is connected to the labs.
func (b *bench) start(ctx context.Context, stdin []byte, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SSH_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	return cmd
}

// command runs the binary in the namespace where this program is.
func (b *bench) command(stdin []byte, args ...string) (ran, error) {
	return b.finish(b.start(b, stdin, b.binary, args...), (*exec.Cmd).Run)
}

// finish runs a prepared program to its end by way of run.
func (b *bench) finish(cmd *exec.Cmd, run func(*exec.Cmd) error) (ran, error) {
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	begin := time.Now()
	err := hurried(func() error { return run(cmd) })
	r := ran{output: out.String(), wall: time.Since(begin)}
	if p := cmd.ProcessState; p != nil {
		r.cpu = p.UserTime() + p.SystemTime()
	}
	if err != nil {
		return r, fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, failed.String(), out.String())
	}
	return r, nil
}

// hurried runs f on a thread whose children come before what else runs on the
// machine, where the right to that is given: both sides of a comparison alike.
func hurried(f func() error) error {
	const most = -20
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if syscall.Setpriority(syscall.PRIO_PROCESS, 0, most) == nil { // 0 is the thread
		defer func() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 0) }()
	}
	return f()
}

// inside runs a program in a lab.
func (b *bench) inside(l *measure.Lab, stdin []byte, name string, args ...string) (ran, error) {
	return b.finish(b.start(b, stdin, name, args...), func(cmd *exec.Cmd) error {
		if err := l.Namespace.Do(cmd.Start); err != nil {
			return err
		}
		return cmd.Wait()
	})
}

// sluice runs a command of the binary about a lab.
func (b *bench) sluice(l *measure.Lab, args ...string) (ran, error) {
	return b.command(nil, append(args, "--netns", l.Namespace.Name(), "--state-dir", b.state)...)
}

// apply loads a policy for good, without reading it back.
func (b *bench) apply(l *measure.Lab, file string) (ran, error) {
	return b.sluice(l, "apply", file, "--no-confirm", "--no-verify")
}

// policy writes a policy file and returns its path.
func (b *bench) policy(name, text string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// nft loads a ruleset by the program that people use.
func (b *bench) nft(l *measure.Lab, ruleset []byte) (ran, error) {
	return b.inside(l, ruleset, "nft", "-f", "-")
}

// empty takes all rules and all of Sluice's state away from a lab that packets are
// no longer sent to, and waits until the kernel has freed them.
func (b *bench) empty(l *measure.Lab) error {
	if _, err := b.nft(l, []byte("flush ruleset\n")); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.state, "netns", l.Namespace.Name())); err != nil {
		return err
	}
	time.Sleep(settle)
	return b.Err()
}

// settle is how long the kernel frees a large set in the background.
const settle = 150 * time.Millisecond
