package apply

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onTrial applies policy a and then b, on trial for an hour.
func (l *lab) onTrial() {
	l.t.Helper()
	l.must(command{Op: "apply", Policy: "a"})
	l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
}

// killWatchers kills both processes that watch.
func (l *lab) killWatchers() {
	l.t.Helper()
	_, cur, err := (&Host{Dir: l.dir}).peek()
	if err != nil || cur.Pending == nil {
		l.t.Fatalf("nothing waits: %v", err)
	}
	for _, pid := range []int{cur.Pending.PID, cur.Pending.Spare} {
		l.killWatcher(pid, cur.Pending.Token)
	}
}

// killWatcher kills a process and waits until it is dead: the signal only tells
// the kernel to.
func (l *lab) killWatcher(pid int, token string) {
	l.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		l.t.Fatalf("kill the watcher %d: %v", pid, err)
	}
	for watches(pid, token) {
		time.Sleep(time.Millisecond)
	}
}

// TestSpareActs kills or stops the watcher alone: the spare one goes back.
func TestSpareActs(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.onTrial()
			_, cur, err := (&Host{Dir: l.dir}).peek()
			if err != nil {
				t.Fatal(err)
			}
			pid := cur.Pending.PID
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			if err := syscall.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
			l.endTrial()
			l.await("a")
			l.settled()
		})
	}
}

// TestDeadWatchersAreStartedAgain has a command come while there is time left:
// what it starts goes back without another command.
func TestDeadWatchersAreStartedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.onTrial()
	before := l.status().Pending
	if again := l.status().Pending; again.PID != before.PID || again.Spare != before.Spare {
		t.Errorf("living watchers were replaced: %+v, %+v", before, again)
	}
	l.killWatchers()
	after := l.status().Pending
	if after == nil || after.PID == before.PID || after.Spare == before.Spare || !watches(after.PID, after.Token) || !watches(after.Spare, after.Token) {
		t.Fatalf("watchers were %+v, and are %+v", before, after)
	}
	l.killWatcher(after.PID, after.Token)
	if third := l.status().Pending; third.PID != after.Spare || !watches(third.Spare, third.Token) {
		t.Errorf("the spare one does not follow: %+v, %+v", after, third)
	}
	l.endTrial()
	l.await("a")
	l.settled()
}

// TestLateCommands come after the time is over and both watchers are dead.
func TestLateCommands(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		c     command
		holds string
		says  string
		fails bool
	}{
		{"status", command{Op: "status"}, "a", "going back to generation 1", false},
		{"confirm", command{Op: "confirm"}, "a", "too late: generation 2 was not confirmed in time: generation 1 runs again", true},
		{"rollback", command{Op: "rollback", N: Before}, "a", "", false},
		{"apply of the same", command{Op: "apply", Policy: "b"}, "b", "generation 3", false},
		{"restore", command{Op: "restore"}, "a", "", false},
		{"remove", command{Op: "remove"}, "", "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.onTrial()
			l.killWatchers()
			l.endTrial()
			l.wantHolds("b")
			out, err := l.run(test.c)
			if (err != nil) != test.fails || !strings.Contains(out, test.says) {
				t.Errorf("%v: %s", err, out)
			}
			l.wantHolds(test.holds)
			if s := l.status(); s.Pending != nil || !s.Fine() {
				t.Errorf("status: %+v", s)
			}
		})
	}
}

// TestDeadTimerIsStartedAgain has systemd say that it knows nothing of the timer.
func TestDeadTimerIsStartedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := fakeSystemd(t)
	l.must(command{Op: "apply", Policy: "a", Confirm: time.Hour, Systemd: dir})
	started := func() int {
		text, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "--on-active=")
	}
	l.must(command{Op: "status", Systemd: dir})
	if n := started(); n != 1 {
		t.Fatalf("%d timers while the first one runs", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.must(command{Op: "status", Systemd: dir})
	if n := started(); n != 2 {
		t.Errorf("%d timers were started", n)
	}
	l.must(command{Op: "confirm", Systemd: dir})
}
