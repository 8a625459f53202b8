package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/testseed"
	"sluice/internal/lab/testnet"
)

// TestRefusedHalfWay: sets are filled when the kernel refuses the transaction
// that would have used them. The old policy stands, and nothing is left of the
// new one.
func TestRefusedHalfWay(t *testing.T) {
	for _, before := range []string{"", "a"} {
		t.Run("before "+before, func(t *testing.T) {
			l := newLab(t)
			if before != "" {
				l.must(command{Op: "apply", Policy: before})
			}
			out, err := l.run(command{Op: "apply", Policy: "b deep"})
			if err == nil || !strings.Contains(out, "switch rules") || !strings.Contains(out, "nothing changed: the kernel holds") {
				t.Errorf("got %v: %s", err, out)
			}
			l.wantHolds(before)
			l.must(command{Op: "apply", Policy: "b"})
			l.wantHolds("b")
		})
	}
}

// TestMemoryRefused: the kernel's memory for a large set is refused while it is
// filled. The error says so, the old policy stands, and what was filled is gone.
func TestMemoryRefused(t *testing.T) {
	for _, before := range []string{"", "a"} {
		t.Run("before "+before, func(t *testing.T) {
			group := newMemoryGroup(t)
			l := newLab(t)
			if before != "" {
				l.must(command{Op: "apply", Policy: before})
			}
			// The bound is for whatever the process asks the kernel for, so that it may be
			// met by a file that it writes.
			for tries := 1; ; tries++ {
				out := l.applyWithoutMemory(group)
				if !strings.Contains(out, "nothing changed: the kernel holds") {
					t.Errorf("it says: %s", out)
				}
				l.wantHolds(before)
				if names := l.ns.MustRun("nft", "-t", "list", "ruleset"); strings.Contains(names, "set served4") != (before != "") {
					t.Errorf("left:\n%s", names)
				}
				if strings.Contains(out, "the kernel has no memory for it") {
					return
				}
				if tries == 5 || t.Failed() {
					t.Fatalf("it says: %s", out)
				}
			}
		})
	}
}

// applyWithoutMemory applies a policy with a huge set and is what that says. Where the set
// begins to be filled, a little more memory is allowed, and enough where it is to be undone:
// the kernel frees what was refused when it comes to it.
func (l *lab) applyWithoutMemory(group *memoryGroup) string {
	l.t.Helper()
	hold := filepath.Join(l.t.TempDir(), "hold")
	c := command{Op: "apply", Policy: "b huge", Hold: hold, HoldAt: fillPoint(l.t, "b huge") + "|going back"}
	p := l.ns.Start("/usr/bin/env", l.childArgs(c)...)
	await(l.t, "the set is to be filled", func() bool { return exists(hold) })
	group.add(p.Pid())
	group.allowMore(24 << 20)
	if err := os.Remove(hold); err != nil {
		l.t.Fatal(err)
	}
	group.feed(func() bool { return exists(hold) || ended(p) })
	group.allowMore(1 << 30)
	if err := os.Remove(hold); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Fatal(err)
	}
	<-p.Done()
	return p.Output()
}

// TestKilledWhileFilling: a set that a killed command has filled in part bears
// the right name, and is not trusted for it.
func TestKilledWhileFilling(t *testing.T) {
	delays := []time.Duration{0, 40 * time.Millisecond, 300 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
	for _, delay := range delays[:testseed.Rounds(3, len(delays))] {
		for _, next := range []string{"a", "b wide"} {
			t.Run(fmt.Sprintf("%s %s", delay, next), func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				l.must(command{Op: "apply", Policy: "a"})
				hold := filepath.Join(t.TempDir(), "hold")
				p := l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "apply", Policy: "b wide", Hold: hold, HoldAt: fillPoint(t, "b wide")})...)
				await(t, "the set is to be filled", func() bool { return exists(hold) })
				if err := os.Remove(hold); err != nil {
					t.Fatal(err)
				}
				time.Sleep(delay)
				if err := syscall.Kill(p.Pid(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Fatal(err)
				}
				<-p.Done()
				l.must(command{Op: "apply", Policy: next, Wait: time.Minute}) // nft may have been started a moment before
				if got := l.holds("b wide"); got != next {
					t.Errorf("then it holds %s", got)
				}
			})
		}
	}
}

// fillPoint is the point before the largest set of a policy is filled.
func fillPoint(t testing.TB, policy string) string {
	t.Helper()
	a, err := nftables.New().Lower(policyOf(policy), nil)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := nftables.New().Steps(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if step.Purpose == backend.Fill && strings.HasPrefix(step.Name, "set ") {
			return "before fill " + step.Name
		}
	}
	t.Fatal("no set is filled by itself")
	return ""
}

func ended(p *testnet.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// enough is more than anything takes.
const enough = 5 * time.Minute

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("waited in vain until %s", what)
}

// memoryGroup is a control group with a limit of memory, the kernel's included.
// Its processes are not killed: what they ask of the kernel is refused.
type memoryGroup struct {
	t             *testing.T
	dir           string
	usage, bounds string
}

func newMemoryGroup(t *testing.T) *memoryGroup {
	t.Helper()
	for _, place := range []struct{ parent, usage, bounds string }{
		{"/sys/fs/cgroup", "memory.current", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes"},
	} {
		g := &memoryGroup{t, filepath.Join(place.parent, fmt.Sprintf("sluice-test-%d", os.Getpid())), place.usage, place.bounds}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			await(t, "the control group is empty", func() bool { err := os.Remove(g.dir); return err == nil || errors.Is(err, fs.ErrNotExist) })
		})
		if exists(filepath.Join(g.dir, g.bounds)) {
			return g
		}
	}
	testnet.Lacks(t, "control groups with a limit of memory", errors.New("none can be made"))
	return nil
}

func (g *memoryGroup) write(file, text string) {
	g.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// add takes a process in. The kernel is told not to kill it, where it can be.
func (g *memoryGroup) add(pid int) {
	g.t.Helper()
	first := os.WriteFile(filepath.Join(g.dir, "memory.oom_control"), []byte("1"), 0o644)
	second := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("-1000"), 0o644)
	if first != nil && second != nil {
		testnet.Lacks(g.t, "processes that are not killed for lack of memory", errors.Join(first, second))
	}
	g.write(filepath.Join(g.dir, "cgroup.procs"), strconv.Itoa(pid))
}

// feed waits until a process is somewhere. One that wants memory for itself where none is
// left waits for it, so that it gets a little each time; far less than the set would take.
func (g *memoryGroup) feed(there func() bool) {
	g.t.Helper()
	fed := time.Now()
	waits := func() bool {
		// Version 1 says so. Where nothing does, one that has got nothing for a second does.
		if text, err := os.ReadFile(filepath.Join(g.dir, "memory.oom_control")); err == nil {
			return strings.Contains(string(text), "under_oom 1")
		}
		return time.Since(fed) > time.Second
	}
	await(g.t, "the process has the memory that it wants", func() bool {
		// What it waits for may be larger than what is left.
		left := g.read(g.bounds) - g.read(g.usage)
		if (left < 64<<10 || time.Since(fed) > time.Second) && waits() {
			g.allowMore(1 << 20)
			fed = time.Now()
		}
		return there()
	})
}

// allowMore sets the limit to what is used and a number of bytes.
func (g *memoryGroup) allowMore(bytes int) {
	g.t.Helper()
	g.write(filepath.Join(g.dir, g.bounds), strconv.Itoa(g.read(g.usage)+bytes))
}

func (g *memoryGroup) read(file string) int {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		g.t.Fatal(err)
	}
	bytes, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		g.t.Fatal(err)
	}
	return bytes
}
