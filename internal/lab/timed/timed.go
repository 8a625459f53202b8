// Package timed runs a program to its end and says what it took: time by the
// clock and of processors, the memory that it and its children held, and what the
// kernel held for them. Packages limits and applybench compare whole commands by it.
package timed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice/internal/system/kernel/memgroup"
)

// Program is one run of a program. It dies with this process.
type Program struct {
	Name  string
	Args  []string
	Stdin []byte
	Env   []string // beside Environment
	// In starts it elsewhere, such as testnet's Namespace.Do; nil is here.
	In func(start func() error) error
	// Watch has its memory sampled all the time, which costs time.
	Watch bool
	// With are processes whose memory and time count with the program's own, such as
	// a service that it asks.
	With []int
	// Group is where what the kernel holds for the program is charged; nil: nowhere.
	Group *memgroup.Group
}

// Cost is what a run took.
type Cost struct {
	Output string        // standard output
	Wall   time.Duration // from the start of the process to its end
	CPU    time.Duration // of the program, the children that it waited for, and With
	// Resident is the most bytes that the program, its descendants and With held at
	// one time, as far as samples tell; only of a program that is watched. (ru_maxrss
	// tells something else: exec_mmap in fs/exec.c hands on to a program what the one
	// held that started it.)
	Resident int64
	// Kernel is the most bytes that the kernel held for the group; only of a program
	// that is watched and has one.
	Kernel int64
}

// Run runs a program. The error has what it wrote.
func Run(ctx context.Context, p Program) (Cost, error) {
	cmd, release, err := p.command(ctx)
	if err != nil {
		return Cost{}, err
	}
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	before := TimeOf(p.With)
	c := Cost{}
	begin := time.Now()
	err = hurried(func() error {
		if p.In == nil {
			return cmd.Start()
		}
		return p.In(cmd.Start)
	})
	if err != nil {
		release()
		return c, fmt.Errorf("start %s: %w", p.Name, err)
	}
	if p.Group != nil {
		err = p.Group.Add(cmd.Process.Pid)
	}
	release()
	stop := func() {}
	if p.Watch {
		stop = c.watch(cmd.Process.Pid, p)
	}
	waited := cmd.Wait()
	c.Wall = time.Since(begin)
	stop()
	c.Output = out.String()
	c.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() + TimeOf(p.With) - before
	if waited != nil {
		return c, fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(p.Name), strings.Join(p.Args, " "), waited, failed.String(), out.String())
	}
	return c, err
}

// command prepares a program. One that belongs to a group waits until release is
// called, so that it is in the group before it does anything.
func (p Program) command(ctx context.Context) (cmd *exec.Cmd, release func(), err error) {
	name, args, gate := p.Name, p.Args, (*os.File)(nil)
	release = func() {}
	if p.Group != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		gate = r
		release = func() { _, _ = r.Close(), w.Close() }
		name, args = "/bin/sh", append([]string{"-c", `read -r _ <&3; exec "$0" "$@" 3<&-`, p.Name}, p.Args...)
	}
	cmd = exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if gate != nil {
		cmd.ExtraFiles = []*os.File{gate}
	}
	cmd.Env = append(Environment(), p.Env...)
	if p.Stdin != nil {
		cmd.Stdin = bytes.NewReader(p.Stdin)
	}
	return cmd, release, nil
}

// Environment is that of this process without SSH_*: nobody is connected to a lab.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SSH_") })
}

// sampling is how often memory is looked at.
const sampling = 200 * time.Microsecond

// watch samples memory until stop is called.
func (c *Cost) watch(pid int, p Program) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(sampling); ; {
			sum := residentTree(pid)
			for _, other := range p.With {
				sum += residentTree(other)
			}
			c.Resident = max(c.Resident, sum)
			if p.Group != nil {
				if held, err := p.Group.Kernel(); err == nil {
					c.Kernel = max(c.Kernel, held)
				}
			}
			select {
			case <-tick.C:
			case <-end:
				tick.Stop()
				return
			}
		}
	}()
	return func() {
		close(end)
		<-done
	}
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
