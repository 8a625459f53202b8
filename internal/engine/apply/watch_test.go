package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// TestWatcherSurvivesTheEndOfASession sends the watcher what ends a login: the
// signals, and the kill of every process of the login's cgroup.
func TestWatcherSurvivesTheEndOfASession(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	group := newCgroup(t)
	args := append([]string{"-c", `echo $$ > "$0"/cgroup.procs; exec "$@"`, group, "/usr/bin/env"}, l.childArgs(command{Op: "apply", Policy: "b", Confirm: time.Hour})...)
	if out, err := l.ns.Run("/bin/sh", args...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid := l.status().Pending.PID
	if session, err := unix.Getsid(pid); err != nil || session != pid {
		t.Errorf("the watcher %d is in the session %d: %v", pid, session, err)
	}
	if in := cgroupOf(t, pid); strings.Contains(in, filepath.Base(group)) {
		t.Errorf("the watcher is in the cgroup of who started it: %s", in)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTSTP} {
		if err := syscall.Kill(pid, signal); err != nil {
			t.Fatalf("signal %s: %v", signal, err)
		}
	}
	l.endTrial()
	l.await("a")
	l.settled()
}

// TestNextCommandStandsInForADeadWatcher kills the watcher itself.
func TestNextCommandStandsInForADeadWatcher(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.onTrial()
	l.killWatchers()
	l.endTrial()
	l.wantHolds("b")
	if out, err := l.run(command{Op: "confirm"}); err == nil || !strings.Contains(out, "not confirmed in time: going back to generation 1") {
		t.Errorf("a late confirm: %v %s", err, out)
	}
	l.wantHolds("a")
	if s := l.status(); s.Pending != nil || s.Boot != 1 {
		t.Errorf("status: %+v", s)
	}
}

// TestWatcherEndsWithTheConfirmation looks for what is left behind.
func TestWatcherEndsWithTheConfirmation(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a", Confirm: time.Hour})
	pending := l.status().Pending
	l.must(command{Op: "confirm"})
	for _, pid := range []int{pending.PID, pending.Spare} {
		await(t, fmt.Sprintf("the watcher %d ends", pid), func() bool { return !watches(pid, pending.Token) })
	}
}

// TestWatcherHoldsNothing starts an apply with a pipe at descriptor 3 and higher:
// who waits for the end of that pipe must not wait for the watcher.
func TestWatcherHoldsNothing(t *testing.T) {
	l := newLab(t)
	args := append([]string{"-c", `{ "$@" 7>&1 | cat; } 8>&1`, "sh", "/usr/bin/env"}, l.childArgs(command{Op: "apply", Policy: "a", Confirm: time.Hour})...)
	l.ns.MustRun("/bin/sh", args...)
	pid := l.status().Pending.PID
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		if strings.HasPrefix(to, "pipe:") || strings.HasSuffix(to, "/"+lockFile) || to == l.dir {
			t.Errorf("descriptor %s of the watcher is %s", e.Name(), to)
		}
	}
	l.must(command{Op: "confirm"})
}

// newCgroup makes a cgroup of version 2 that the test's end removes.
func newCgroup(t *testing.T) string {
	t.Helper()
	for _, root := range cgroupRoots("/proc/self/mountinfo") {
		if _, err := os.Stat(filepath.Join(root, "cgroup.subtree_control")); err != nil {
			continue
		}
		group := filepath.Join(root, fmt.Sprintf("sl-apply-test-%d", os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { await(t, "the control group is empty", func() bool { return os.Remove(group) == nil }) })
		return group
	}
	testnet.Lacks(t, "control groups of version 2", errors.New("none can be made"))
	return ""
}

func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWatchEndsWithItsContext, also while the time is over and going back is kept up.
func TestWatchEndsWithItsContext(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	s := testStore(t)
	if err := s.saveCurrent(&current{
		Format: format, Next: 2, Running: 1, BootID: bootID(),
		Pending: &Pending{Generation: 1, Token: "t", BootID: bootID()},
	}); err != nil {
		t.Fatal(err)
	}
	held, err := takeLock(t.Context(), s.dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	ctx, cancel := context.WithCancel(t.Context())
	h := &Host{Dir: s.dir, Note: func(string) { cancel() }} // it waits for the lock
	if err := h.Watch(ctx, "t"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
