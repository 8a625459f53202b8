package apply

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestApplyRollbackRemove(t *testing.T) {
	l := newLab(t)
	if got := l.status(); got.Condition != Nothing {
		t.Fatalf("at first: %s", got.Condition)
	}
	l.must(command{Op: "apply", Policy: "a"})
	l.wantHolds("a")
	if out := l.must(command{Op: "apply", Policy: "a"}); !strings.Contains(out, "generation 1 unchanged true") {
		t.Errorf("the same policy again: %s", out)
	}
	l.must(command{Op: "apply", Policy: "b"})
	l.wantHolds("b")
	s := l.status()
	if s.Condition != Running || s.Generation.Number != 2 || s.Boot != 2 || len(s.Drift) > 0 {
		t.Errorf("status: %+v", s)
	}
	l.must(command{Op: "rollback", N: -1})
	l.wantHolds("a")
	l.must(command{Op: "rollback", N: 2})
	l.wantHolds("b")
	if out, err := l.run(command{Op: "rollback", N: 9}); err == nil || !strings.Contains(out, "no generation 9") {
		t.Errorf("rollback to what is not there: %v %s", err, out)
	}
	l.must(command{Op: "remove"})
	l.wantHolds("")
	if s := l.status(); s.Condition != Nothing || s.Boot != 0 {
		t.Errorf("after remove: %+v", s)
	}
	l.must(command{Op: "rollback", N: 1})
	l.wantHolds("a")
}

func TestUnconfirmedComesBack(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "a"} {
		t.Run("before "+before, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			if before != "" {
				l.must(command{Op: "apply", Policy: before})
			}
			l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
			l.wantHolds("b")
			if s := l.status(); s.Pending == nil || s.Left <= 0 {
				t.Fatalf("nothing pending: %+v", s)
			}
			l.endTrial()
			l.await(before)
			l.settled()
			if s := l.status(); s.Pending != nil {
				t.Errorf("still pending: %+v", s.Pending)
			}
		})
	}
}

// await waits until the kernel holds a policy.
func (l *lab) await(want string) {
	l.t.Helper()
	await(l.t, fmt.Sprintf("the kernel holds %q", want), func() bool { return l.holds() == want })
}

// settled waits for the end of the change that a watcher makes, which holds the lock
// until after it has removed its journal.
func (l *lab) settled() {
	l.t.Helper()
	await(l.t, "the change is over", func() bool { return !exists(filepath.Join(l.dir, journalFile)) })
	l.status()
}

func TestConfirmed(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.must(command{Op: "apply", Policy: "b", Confirm: time.Minute})
	if s := l.status(); s.Boot != 1 {
		t.Errorf("an unconfirmed policy would boot: %d", s.Boot)
	}
	l.must(command{Op: "confirm"})
	if s := l.status(); s.Boot != 2 || s.Pending != nil {
		t.Errorf("after confirm: boot %d, pending %v", s.Boot, s.Pending)
	}
	if out, err := l.run(command{Op: "confirm"}); err == nil || !strings.Contains(out, "no policy waits") {
		t.Errorf("confirm twice: %v %s", err, out)
	}
	l.wantHolds("b")
}

func TestRollbackOfPending(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.must(command{Op: "apply", Policy: "b", Confirm: time.Minute})
	// A second try before the first is confirmed: what comes back is the last
	// good policy, not the first try.
	l.must(command{Op: "apply", Policy: "c", Confirm: time.Minute})
	l.wantHolds("c")
	l.must(command{Op: "rollback", N: -1})
	l.wantHolds("a")
	if s := l.status(); s.Boot != 1 || s.Pending != nil {
		t.Errorf("boot %d, pending %v", s.Boot, s.Pending)
	}
}

func TestForeignFlush(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.ns.Nft("flush ruleset")
	if s := l.status(); s.Condition != Gone || s.Fine() {
		t.Errorf("after a flush: %s", s.Condition)
	}
	l.must(command{Op: "restore"})
	l.wantHolds("a")
	// Half of it: the rules went, the mark stayed.
	l.ns.Nft("delete table inet sluice")
	if s := l.status(); s.Condition != Gone {
		t.Errorf("without the table: %s", s.Condition)
	}
	l.must(command{Op: "apply", Policy: "a"})
	l.wantHolds("a")
	// The other half: the mark went, the rules stayed.
	l.ns.Nft("delete table inet sluice_generation")
	if s := l.status(); s.Condition != Unmarked || len(s.Drift) > 0 || s.Fine() {
		t.Errorf("without the mark: %+v", s)
	}
	l.must(command{Op: "restore"})
	if s := l.status(); !s.Fine() {
		t.Errorf("restored: %+v", s)
	}
	// A change that fails, or is killed, must not take the rules for none.
	l.ns.Nft("delete table inet sluice_generation")
	names := points(t, []command{{Op: "apply", Policy: "a"}}, command{Op: "apply", Policy: "b"})
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "before switch") })
	if out, err := l.run(command{Op: "apply", Policy: "b", KillAt: fmt.Sprint(at + 1)}); err == nil {
		t.Fatalf("it was not killed: %s", out)
	}
	if s := l.status(); !s.Fine() {
		t.Errorf("after the kill: %+v", s)
	}
	l.wantHolds("a")
}

func TestDriftIsNamed(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	listing := l.ns.MustRun("nft", "list", "table", "inet", "sluice")
	set := regexp.MustCompile(`set (served\w+)`).FindStringSubmatch(listing)
	if set == nil {
		t.Fatalf("no set:\n%s", listing)
	}
	l.ns.Nft("delete element inet sluice " + set[1] + " { 20.97.3.1-20.97.3.2 }")
	s := l.status()
	if s.Fine() || len(s.Drift) != 1 || !strings.Contains(DescribeDifference(s.Drift[0]), "20.97.3.1-20.97.3.2") {
		t.Errorf("drift: %+v", s.Drift)
	}
	l.must(command{Op: "restore"})
	l.wantHolds("a")
}

func TestTwoAtOnce(t *testing.T) {
	l := newLab(t)
	hold := filepath.Join(l.dir, "hold")
	first := l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "apply", Policy: "a", Hold: hold})...)
	await(t, "the first one holds the lock", func() bool { return exists(hold) })
	out, err := l.run(command{Op: "apply", Policy: "b"})
	if err == nil || !strings.Contains(out, "is changing the firewall") {
		t.Errorf("a second apply: %v %s", err, out)
	}
	if s := l.statusWithin(0); s.Condition != Changing || s.Busy == "" {
		t.Errorf("status meanwhile: %+v", s)
	}
	second := l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "apply", Policy: "b", Wait: time.Minute})...)
	await(t, "the second one says that it waits", func() bool { return strings.Contains(second.Output(), "waiting at most") })
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	<-second.Done()
	l.wantHolds("b")
}

func TestRestoreAfterReboot(t *testing.T) {
	l := newLab(t)
	l.onTrial()
	after := newLab(t)
	after.dir = l.dir
	after.must(command{Op: "restore"})
	after.wantHolds("a")
}

func TestRestoreFailsClosed(t *testing.T) {
	damage := map[string]func(t *testing.T, dir string){
		"artifact": func(t *testing.T, dir string) {
			blobs, err := filepath.Glob(filepath.Join(dir, blobsDir, "*"))
			if err != nil || len(blobs) == 0 {
				t.Fatal("no blobs", err)
			}
			for _, b := range blobs {
				if err := os.WriteFile(b, []byte("rubbish"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		"newer": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, currentFile), []byte(`{"format": 99}`), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, harm := range damage {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.must(command{Op: "apply", Policy: "a"})
			harm(t, l.dir)
			after := newLab(t)
			after.dir = l.dir
			out, err := after.run(command{Op: "restore"})
			if err == nil || !strings.Contains(out, "the host is closed, with ssh open at port 22") {
				t.Fatalf("restore: %v %s", err, out)
			}
			text := after.ns.MustRun("nft", "list", "ruleset")
			if !strings.Contains(text, "policy drop") || !strings.Contains(text, "22") {
				t.Errorf("not closed:\n%s", text)
			}
		})
	}
}

func TestSysctlsComeAndGo(t *testing.T) {
	t.Parallel()
	const name = "net.netfilter.nf_conntrack_generic_timeout"
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	before, err := l.ns.GetSysctl(name)
	if err != nil {
		t.Fatal(err)
	}
	want := func(what, value string) {
		t.Helper()
		if got, err := l.ns.GetSysctl(name); err != nil || got != value {
			t.Errorf("%s: %s is %s, want %s (%v)", what, name, got, value, err)
		}
	}
	l.must(command{Op: "apply", Policy: "timeout77"})
	want("applied", "77")
	if err := l.ns.SetSysctl(name, "78"); err != nil {
		t.Fatal(err)
	}
	if s := l.status(); s.Fine() || len(s.Sysctls) != 1 {
		t.Errorf("changed by hand: %+v", s.Sysctls)
	}
	l.must(command{Op: "rollback", N: -1})
	want("rolled back", before)
	l.must(command{Op: "apply", Policy: "timeout77", Confirm: time.Hour})
	want("applied again", "77")
	l.endTrial()
	l.await("a")
	l.settled()
	want("expired", before)
	l.must(command{Op: "apply", Policy: "timeout77"})
	l.must(command{Op: "remove"})
	want("removed", before)
}

func TestLockOutIsRefused(t *testing.T) {
	l := newLab(t)
	out, err := l.run(command{Op: "apply", Policy: "a", SSHClient: "10.0.0.9:50000"})
	if err == nil || !strings.Contains(out, "locks out 10.0.0.9") || !strings.Contains(out, "default of input") {
		t.Errorf("apply: %v %s", err, out)
	}
	l.wantHolds("")
	l.must(command{Op: "apply", Policy: "a", SSHClient: "10.0.0.9:50000", Force: true})
	l.wantHolds("a")
}
