package process

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestAncestors(t *testing.T) {
	chain := Ancestors(os.Getpid())
	if len(chain) < 2 || chain[0] != os.Getpid() || chain[1] != os.Getppid() {
		t.Errorf("ancestors of %d are %v, want %d next", os.Getpid(), chain, os.Getppid())
	}
	if got := Ancestors(0); len(got) != 0 {
		t.Errorf("process 0 has ancestors %v", got)
	}
}

func TestEnvironment(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "A_THING=a b=c"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// Start returns when exec has closed its pipe, which is a moment before the
	// kernel has laid out the environment (load_elf_binary in fs/binfmt_elf.c).
	got, ok := Environment(cmd.Process.Pid, "A_THING")
	for range 6000 {
		if ok {
			break
		}
		time.Sleep(10 * time.Millisecond)
		got, ok = Environment(cmd.Process.Pid, "A_THING")
	}
	if got != "a b=c" {
		t.Errorf("got %q %v", got, ok)
	}
	if got, ok := Environment(cmd.Process.Pid, "A_THIN"); ok {
		t.Errorf("a variable that is not there is %q", got)
	}
	if got := Name(cmd.Process.Pid); got != "sleep" {
		t.Errorf("name %q", got)
	}
}

func TestOwners(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	owners, err := Owners()
	if err != nil {
		t.Fatal(err)
	}
	mine := 0
	for _, list := range owners {
		if slices.ContainsFunc(list, func(p Process) bool { return p.PID == os.Getpid() }) {
			mine++
		}
	}
	if mine == 0 {
		t.Error("this process owns no socket")
	}
	for name, want := range map[string]bool{Name(os.Getpid()): true, "nobody of that name": false} {
		named, err := OwnersNamed("another", name)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for inode, list := range named {
			for _, p := range list {
				if p.Name != name || !slices.Contains(owners[inode], p) && p.PID != os.Getpid() {
					t.Errorf("asked for %s: %+v", name, p)
				}
				found++
			}
		}
		if want && found < mine || !want && found > 0 {
			t.Errorf("asked for %s: %d, of %d", name, found, mine)
		}
	}
}

// TestNameOfOneLine: whatever a process calls itself is text of one line.
func TestNameOfOneLine(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the name is the thread's, which ends with this
	hostile := []byte("a\nb\u0085: \x1b[2J\x00")
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&hostile[0])), 0, 0, 0); err != nil { //nolint:gosec // as prctl wants it
		t.Fatal(err)
	}
	if got := Name(unix.Gettid()); got != "a?b?: ?[2J" {
		t.Errorf("name %q", got)
	}
}
