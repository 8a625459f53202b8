package timed

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/memgroup"
)

// Ways of a shell to have eight million bytes, and forty.
const (
	hold = `x=$(head -c 8000000 /dev/zero | tr "\0" x); `
	more = `x=$(head -c 40000000 /dev/zero | tr "\0" x); `
)

// A program's memory is counted with that of its children.
func TestResidentCountsChildren(t *testing.T) {
	resident := func(script string) int64 {
		c, err := Run(t.Context(), Program{Name: "sh", Args: []string{"-c", script}, Watch: true})
		if err != nil {
			t.Fatal(err)
		}
		return c.Resident
	}
	alone := resident(hold + "sleep 0.3; : $x")
	both := resident(hold + "sh -c '" + more + "sleep 2; : $x'; : $x")
	// A shell may have what it reads twice meanwhile.
	if both < alone+20_000_000 {
		t.Errorf("one holds %d bytes, two %d: want at least 20,000,000 more", alone, both)
	}
}

// A child has the memory of who starts it until it runs its own program.
func TestMemoryIsShared(t *testing.T) {
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	if own := os.Getpid(); !sameMemory(own, own) || sameMemory(own, child.Process.Pid) {
		t.Errorf("a process and itself: %v, and another program: %v", sameMemory(own, own), sameMemory(own, child.Process.Pid))
	}
}

// What the kernel holds for a program is charged to its group from its first
// instruction on: a pipe's buffer here.
func TestKernelMemoryOfGroup(t *testing.T) {
	g, err := memgroup.New("programs")
	if err != nil {
		testnet.Lacks(t, "control groups with memory", err)
	}
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	c, err := Run(t.Context(), Program{Name: "cat", Args: []string{"/proc/self/cgroup"}, Watch: true, Group: g})
	if err != nil {
		t.Fatal(err)
	}
	name := g.Dir[strings.LastIndexByte(g.Dir, '/')+1:]
	if !strings.Contains(c.Output, name) || c.Kernel == 0 {
		t.Errorf("the program ran in %q and the kernel held %d bytes for it; want it in %s", c.Output, c.Kernel, name)
	}
}

func TestFailureSaysWhatTheProgramWrote(t *testing.T) {
	c, err := Run(t.Context(), Program{Name: "sh", Args: []string{"-c", "read -r x; echo \"got $x $Y\"; echo bad luck >&2; exit 3"}, Stdin: []byte("in\n"), Env: []string{"Y=env"}})
	if err == nil || !strings.Contains(err.Error(), "bad luck") || c.Output != "got in env\n" {
		t.Errorf("got %q and %v", c.Output, err)
	}
}
