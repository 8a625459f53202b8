// Package memgroup makes control groups that count and bound the memory that the
// kernel holds for processes, and count the processor time of these. Packages stress and
// applybench call it, as what rules and sets take is charged to whoever loads them, and
// fleetbench, which shows a controller and its agents apart.
package memgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a control group of this kernel that counts and bounds the memory
// that the kernel holds for the processes in it, rules and sets among it
// (GFP_KERNEL_ACCOUNT in net/netfilter/nf_tables_api.c). Other load on the machine
// does not disturb it.
type Group struct {
	Dir string // its folder
	V2  bool   // of version 2 of control groups

	time string // its folder that counts processor time; "" without, or in version 2
}

const groups = "/sys/fs/cgroup"

// groupNumber makes names unique within the process.
var groupNumber atomic.Uint32

// New makes a group, or says why not. What killed processes left behind is
// removed by the way.
func New(label string) (*Group, error) {
	name := fmt.Sprintf("sl-%s-p%d-%d", label, os.Getpid(), groupNumber.Add(1))
	if _, err := os.Stat(filepath.Join(groups, "cgroup.controllers")); err == nil {
		// A group that holds processes cannot have such with memory below it, but
		// the root can.
		g := &Group{Dir: filepath.Join(groups, name), V2: true}
		_ = os.WriteFile(filepath.Join(groups, "cgroup.subtree_control"), []byte("+memory"), 0)
		reapGroups(groups)
		if err := os.Mkdir(g.Dir, 0o755); err != nil {
			return nil, err
		}
		if _, err := g.Kernel(); err != nil {
			return nil, errors.Join(err, g.Remove())
		}
		return g, nil
	}
	own, err := ownGroup()
	if err != nil {
		return nil, err
	}
	g := &Group{Dir: filepath.Join(groups, "memory", own, name)}
	reapGroups(filepath.Dir(g.Dir))
	return g, os.Mkdir(g.Dir, 0o755)
}

// CountTime has the group count the time of processors too, which is a hierarchy of its
// own in version 1. Processes are added afterwards.
func (g *Group) CountTime() error {
	if g.V2 || g.time != "" {
		return nil
	}
	of := filepath.Join(groups, "cpuacct")
	reapGroups(of)
	dir := filepath.Join(of, filepath.Base(g.Dir))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	g.time = dir
	return nil
}

// reapGroups removes the groups of processes that are gone, which are empty.
func reapGroups(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "sl-*-p*-*")) // the pattern cannot be malformed
	for _, path := range left {
		var pid, number int
		name := filepath.Base(path)
		if _, err := fmt.Sscanf(name[strings.LastIndex(name, "-p"):], "-p%d-%d", &pid, &number); err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(path)
		}
	}
}

// Open is a group that another process has made.
func Open(dir string) *Group {
	_, err := os.Stat(filepath.Join(dir, "memory.max"))
	return &Group{Dir: dir, V2: err == nil}
}

// ownGroup is this process's own group of the memory controller's version 1.
func ownGroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[1] == "memory" {
			return parts[2], nil
		}
	}
	return "", errors.New("no control group with the memory controller")
}

func (g *Group) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.Dir, file), []byte(text), 0)
}

func (g *Group) read(file string) (int64, error) { return read(filepath.Join(g.Dir, file)) }

func read(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// Add moves a process into the group; what it starts is in it too.
func (g *Group) Add(pid int) error {
	for _, file := range g.Members() {
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// Members are the files that a process writes its id to, to be in the group before it is
// another program.
func (g *Group) Members() []string {
	files := []string{filepath.Join(g.Dir, "cgroup.procs")}
	if g.time != "" {
		files = append(files, filepath.Join(g.time, "cgroup.procs"))
	}
	return files
}

// Usage is what a group has taken.
type Usage struct {
	Memory int64         // now: of processes, of the kernel for them, and of files that they read or wrote
	Files  int64         // of it, what holds files alone, and is given back where memory is short
	Peak   int64         // the most that Memory was
	Time   time.Duration // of processors; only after CountTime
}

// Usage says what the group has taken until now.
func (g *Group) Usage() (u Usage, err error) {
	names := map[bool][3]string{
		true:  {"memory.current", "memory.peak", "file"},
		false: {"memory.usage_in_bytes", "memory.max_usage_in_bytes", "cache"},
	}[g.V2]
	if u.Memory, err = g.read(names[0]); err != nil {
		return u, err
	}
	if u.Peak, err = g.read(names[1]); err != nil {
		return u, err
	}
	if u.Files, err = g.field("memory.stat", names[2]); err != nil {
		return u, err
	}
	switch {
	case g.V2:
		var us int64
		us, err = g.field("cpu.stat", "usage_usec")
		u.Time = time.Duration(us) * time.Microsecond
	case g.time != "":
		var ns int64
		ns, err = read(filepath.Join(g.time, "cpuacct.usage"))
		u.Time = time.Duration(ns)
	}
	return u, err
}

// Kernel is how many bytes the kernel holds for the group.
func (g *Group) Kernel() (int64, error) {
	if !g.V2 {
		return g.read("memory.kmem.usage_in_bytes")
	}
	return g.field("memory.stat", "kernel")
}

// field reads a line "NAME NUMBER" of a file.
func (g *Group) field(file, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.Dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if is, number, _ := strings.Cut(strings.TrimSpace(line), " "); is == name {
			return strconv.ParseInt(number, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s of the control group has no %q", file, name)
}

// Limit bounds the memory of the group, bytes.
func (g *Group) Limit(bytes int64) error {
	return g.write(map[bool]string{true: "memory.max", false: "memory.limit_in_bytes"}[g.V2], strconv.FormatInt(bytes, 10))
}

// LimitMore bounds it to what it has now and so many bytes more.
func (g *Group) LimitMore(bytes int64) error {
	now, err := g.read(map[bool]string{true: "memory.current", false: "memory.usage_in_bytes"}[g.V2])
	if err != nil {
		return err
	}
	return g.Limit(now + bytes)
}

// Remove removes the group when the last process has left it, for which the
// kernel may take a moment.
func (g *Group) Remove() error {
	err := remove(g.Dir)
	if g.time != "" {
		err = errors.Join(err, remove(g.time))
	}
	return err
}

func remove(dir string) (err error) {
	for range 100 {
		if err = os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Join moves the calling thread alone into a group of version 1: what the
// kernel holds for it counts there, and its own memory where it was (mm->owner).
// back moves it back.
func Join(dir string) (back func(), err error) {
	own, err := ownGroup()
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	thread := []byte(strconv.Itoa(unix.Gettid()))
	if err := os.WriteFile(filepath.Join(dir, "tasks"), thread, 0); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() {
		if os.WriteFile(filepath.Join(groups, "memory", own, "tasks"), thread, 0) == nil {
			runtime.UnlockOSThread() // else the thread ends with its goroutine
		}
	}, nil
}
