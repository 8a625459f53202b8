package apply

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// earlyDevices are the interfaces that the chain at ingress has.
func (l *lab) earlyDevices() string {
	l.t.Helper()
	listing := l.ns.MustRun("nft", "list", "table", "inet", "sluice")
	for line := range strings.Lines(listing) {
		if strings.Contains(line, "hook ingress") {
			return line
		}
	}
	l.t.Fatalf("no chain at ingress:\n%s", listing)
	return ""
}

func (l *lab) addVM() {
	l.t.Helper()
	l.ns.MustRun("ip", "link", "add", "vm0", "type", "veth", "peer", "name", "vm1")
	l.ns.MustRun("ip", "link", "set", "lo", "up")
}

// rebooted is a new namespace over the state of one where the policy ran with
// both interfaces.
func rebooted(t *testing.T, then ...command) *lab {
	t.Helper()
	before := newLab(t)
	before.addVM()
	before.must(command{Op: "apply", Policy: "a early"})
	for _, c := range then {
		before.must(c)
	}
	after := newLab(t)
	after.dir = before.dir
	return after
}

// TestMissingInterface has an interface come later than the rules.
func TestMissingInterface(t *testing.T) {
	t.Parallel()
	l := rebooted(t)
	l.must(command{Op: "restore"})
	if d := l.earlyDevices(); strings.Contains(d, "vm0") || !strings.Contains(d, "lo") {
		t.Errorf("without vm0: %s", d)
	}
	s := l.status()
	if !s.Fine() || len(s.Waiting) != 1 || s.Waiting[0] != (Waiting{"vm0", false}) {
		t.Errorf("status without it: %+v", s)
	}
	events := len(s.Generation.Events)
	l.must(command{Op: "restore", Waiting: true})
	if s := l.status(); len(s.Generation.Events) != events {
		t.Errorf("a restore of what waits did something: %+v", s.Generation.Events)
	}
	l.addVM()
	if s := l.status(); !s.Fine() || len(s.Waiting) != 1 || !s.Waiting[0].There {
		t.Errorf("status with it: %+v", s)
	}
	l.must(command{Op: "restore", Waiting: true})
	if d := l.earlyDevices(); !strings.Contains(d, "vm0") {
		t.Errorf("with vm0: %s", d)
	}
	s = l.status()
	if !s.Fine() || len(s.Waiting) != 0 {
		t.Errorf("status at the end: %+v", s)
	}
	l.must(command{Op: "restore", Waiting: true})
	if after := l.status(); len(after.Generation.Events) != len(s.Generation.Events) {
		t.Errorf("a second one did something: %+v", after.Generation.Events)
	}
	// Rules that another tool flushed meanwhile come back too.
	l.ns.Nft("flush ruleset")
	l.must(command{Op: "restore", Waiting: true})
	if s := l.status(); !s.Fine() {
		t.Errorf("after a flush: %+v", s)
	}
}

// TestWaitingNeverCloses has an interface come when the policy cannot be read any more:
// the rules that run are better than a closed host.
func TestWaitingNeverCloses(t *testing.T) {
	t.Parallel()
	for _, damaged := range []string{generationsDir, blobsDir, currentFile} {
		t.Run(damaged, func(t *testing.T) {
			t.Parallel()
			l := rebooted(t)
			l.must(command{Op: "restore"})
			l.addVM()
			err := filepath.WalkDir(filepath.Join(l.dir, damaged), func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				return os.WriteFile(path, []byte("rubbish"), 0o600)
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.run(command{Op: "restore", Waiting: true})
			if (err == nil) != (damaged == currentFile) { // which the generations say again
				t.Errorf("it ended with %v", err)
			}
			l.earlyDevices() // fails where the rules are not there
			l.ns.Nft("flush ruleset")
			_, err = l.run(command{Op: "restore", Waiting: true})
			if damaged != currentFile && (err == nil || !strings.Contains(err.Error(), "the host is closed")) {
				t.Errorf("with no rules at all it ended with %v", err)
			}
		})
	}
}

// TestMissingInterfaceKeepsLayout: what is rebuilt at boot is laid out as it was at
// the apply, whatever layouts are said to take by then.
func TestMissingInterfaceKeepsLayout(t *testing.T) {
	t.Parallel()
	laidOut := func(l *lab) bool {
		return strings.Contains(l.ns.MustRun("nft", "list", "table", "inet", "sluice"), "vmap @served4_map")
	}
	before := newLab(t)
	before.addVM()
	before.must(command{Op: "apply", Policy: "a wide early"})
	if !laidOut(before) {
		t.Fatal("the set is one interval set by the built-in figures, too")
	}
	before.must(command{Op: "apply", Policy: "a wide early", Dear: true})
	if laidOut(before) {
		t.Fatal("the set is laid out, where that takes much memory")
	}
	after := newLab(t)
	after.dir = before.dir
	after.must(command{Op: "restore"})
	if s := after.status(); !s.Fine() || len(s.Waiting) != 1 {
		t.Errorf("status: %+v", s)
	}
	if laidOut(after) {
		t.Error("without an interface the set is laid out by the figures of now")
	}
}

// TestWaitingLeavesPendingAlone: an administrator was quicker than the unit.
func TestWaitingLeavesPendingAlone(t *testing.T) {
	t.Parallel()
	l := rebooted(t)
	l.must(command{Op: "restore"})
	l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
	l.addVM()
	l.must(command{Op: "restore", Waiting: true})
	l.wantHolds("b")
	l.must(command{Op: "rollback", N: Before})
	if d := l.earlyDevices(); !strings.Contains(d, "vm0") {
		t.Errorf("back, with vm0: %s", d)
	}
	if s := l.status(); !s.Fine() || len(s.Waiting) != 0 {
		t.Errorf("status: %+v", s)
	}
}

// TestGoingBackToMissingInterface goes back, by every way, to a policy with an
// interface that is gone.
func TestGoingBackToMissingInterface(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.addVM()
	l.must(command{Op: "apply", Policy: "a early"})
	l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
	l.ns.MustRun("ip", "link", "del", "vm0")
	l.endTrial()
	await(t, "the policy of before is back", func() bool {
		text, err := l.ns.Run("nft", "list", "table", "inet", "sluice")
		return err == nil && strings.Contains(text, "hook ingress")
	})
	l.settled()
	check := func(what string) {
		t.Helper()
		if s := l.status(); !s.Fine() || s.Generation.Number != 1 || len(s.Waiting) != 1 {
			t.Errorf("%s: %+v", what, s)
		}
	}
	check("expired")
	l.must(command{Op: "apply", Policy: "b"})
	l.must(command{Op: "rollback", N: 1})
	check("rolled back")
}

// TestRestoreWithoutInterfaceKilled kills a restore that leaves something out.
func TestRestoreWithoutInterfaceKilled(t *testing.T) {
	t.Parallel()
	l := rebooted(t)
	for i := 1; ; i++ {
		l.ns.Nft("flush ruleset")
		out, err := l.run(command{Op: "restore", KillAt: fmt.Sprint(i)})
		if err == nil {
			if i < 5 {
				t.Errorf("only %d points", i)
			}
			break
		}
		if !strings.Contains(err.Error(), "killed") {
			t.Fatalf("point %d: %v %s", i, err, out)
		}
		l.quiet()
		l.status()
		l.must(command{Op: "restore"})
		if s := l.status(); !s.Fine() || len(s.Waiting) != 1 {
			t.Fatalf("point %d: %+v", i, s)
		}
	}
}
