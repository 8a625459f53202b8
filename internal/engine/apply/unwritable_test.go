package apply

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// disk is a file system of its own for a state, which can be made to take no more.
type disk struct {
	t   *testing.T
	dir string
}

// newDisk mounts a small one at the lab's state directory.
func (l *lab) newDisk(t *testing.T) *disk {
	t.Helper()
	if err := unix.Mount("sluice-test", l.dir, "tmpfs", 0, "size=16m"); err != nil {
		testnet.Lacks(t, "file systems to mount", err)
	}
	d := &disk{t, l.dir}
	t.Cleanup(func() {
		for unix.Unmount(d.dir, unix.MNT_DETACH) == nil {
		}
	})
	return d
}

// fill leaves room for nothing.
func (d *disk) fill() {
	d.t.Helper()
	file, err := os.Create(filepath.Join(d.dir, "ballast"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{1 << 16, 1} {
		for piece := make([]byte, size); ; {
			if _, err = file.Write(piece); err != nil {
				break
			}
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
}

// empty makes room again.
func (d *disk) empty() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "ballast")); err != nil {
		d.t.Fatal(err)
	}
}

// protect makes it read-only for whoever opens a file from now on: what watchers have
// open already keeps a file system itself from that.
func (d *disk) protect() {
	d.t.Helper()
	err := unix.Mount(d.dir, d.dir, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", d.dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "try"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		d.t.Fatalf("it can be written: %v", err)
	}
}

func (d *disk) release() {
	d.t.Helper()
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		d.t.Fatal(err)
	}
}

// refusals are the ways in which a disk takes no more, and the way back.
var refusals = []struct {
	name            string
	refuse, relieve func(*disk)
}{
	{"full", (*disk).fill, (*disk).empty},
	{"read-only", (*disk).protect, (*disk).release},
}

// eachRefusal runs a test with a lab for every way in which a disk takes no more.
func eachRefusal(t *testing.T, test func(t *testing.T, l *lab, refuse, relieve func())) {
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			d := l.newDisk(t)
			test(t, l, func() { r.refuse(d) }, func() { r.relieve(d) })
		})
	}
}

// endTrial makes the time for a confirmation run out now.
func (l *lab) endTrial() {
	l.t.Helper()
	l.openTrial(currentFile)()
}

// openTrial opens files of the state that name the end of a trial, while that can be
// done, and gives a function that ends the trial: it makes the deadline negative, in
// place, which takes no room.
func (l *lab) openTrial(names ...string) (end func()) {
	l.t.Helper()
	var files []*os.File
	for _, name := range names {
		file, err := os.OpenFile(filepath.Join(l.dir, name), os.O_RDWR, 0)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { _ = file.Close() })
		files = append(files, file)
	}
	return func() {
		l.t.Helper()
		for _, file := range files {
			const field = `"deadline": `
			text, err := io.ReadAll(file)
			at := bytes.Index(text, []byte(field))
			if err != nil || at < 0 {
				l.t.Fatalf("no deadline in %s: %v\n%s", file.Name(), err, text)
			}
			if _, err := file.WriteAt([]byte("-1"), int64(at+len(field))); err != nil {
				l.t.Fatal(err)
			}
		}
	}
}

// TestBootFromADiskThatTakesNothing: the confirmed policy is loaded, journal or not;
// sysctls, missing interfaces and the journal of bans with it.
func TestBootFromADiskThatTakesNothing(t *testing.T) {
	for _, policy := range []string{"b", "timeout77", "a early"} {
		t.Run(policy, func(t *testing.T) {
			eachRefusal(t, func(t *testing.T, l *lab, refuse, relieve func()) {
				l.must(command{Op: "apply", Policy: "c"})
				if policy == "a early" {
					l.ns.MustRun("ip", "link", "add", "vm0", "type", "veth", "peer", "name", "vm1")
				}
				l.must(command{Op: "apply", Policy: policy})
				if policy == "a early" {
					l.ns.MustRun("ip", "link", "del", "vm0")
				}
				l.reboot()
				refuse()
				out := l.must(command{Op: "restore"})
				for _, want := range []string{"note: the state in ", "the next boot loads generation 2"} {
					if !strings.Contains(out, want) {
						t.Errorf("it does not say %q: %s", want, out)
					}
				}
				for range 2 {
					s := l.status()
					if s.Condition != Running || s.Generation.Number != 2 || s.Boot != 2 || policy != "a early" && !s.Fine() {
						t.Errorf("status: %+v", s)
					}
				}
				if out, err := l.run(command{Op: "apply", Policy: "a"}); err == nil || !strings.Contains(out, "nothing changed") {
					t.Errorf("an apply that cannot be written: %v %s", err, out)
				}
				if s := l.status(); s.Generation.Number != 2 {
					t.Errorf("then it runs %+v", s)
				}
				relieve()
				l.must(command{Op: "apply", Policy: "a"})
				if s := l.status(); !s.Fine() || s.Generation.Number < 3 {
					t.Errorf("with room again: %+v", s)
				}
			})
		})
	}
}

// TestBootWithNothingWritableClosed: what cannot be loaded closes the host there too.
func TestBootWithNothingWritableClosed(t *testing.T) {
	eachRefusal(t, func(t *testing.T, l *lab, refuse, _ func()) {
		l.must(command{Op: "apply", Policy: "a"})
		l.reboot()
		blobs, err := filepath.Glob(filepath.Join(l.dir, blobsDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, blob := range blobs {
			if err := os.WriteFile(blob, []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filepath.Join(l.dir, lockFile)); err != nil {
			t.Fatal(err)
		}
		refuse()
		if what, said := l.boots(); what != "closed" {
			t.Errorf("it holds %q: %s", what, said)
		}
	})
}

// TestGoingBackNeedsNoDisk: nobody confirms, and the disk takes nothing any more.
func TestGoingBackNeedsNoDisk(t *testing.T) {
	for _, before := range []string{"", "a", "timeout77"} {
		t.Run("to "+before, func(t *testing.T) {
			eachRefusal(t, func(t *testing.T, l *lab, refuse, relieve func()) {
				if before != "" {
					l.must(command{Op: "apply", Policy: before})
				}
				l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
				end := l.openTrial(currentFile)
				refuse()
				l.wantHolds("b")
				end()
				l.await(before)
				running := 0
				if before != "" {
					running = 1
				}
				check := func() {
					t.Helper()
					s := l.status()
					if s.Pending != nil || !s.Fine() || s.Boot != running || running != 0 && s.Generation.Number != running {
						t.Errorf("status: %+v", s)
					}
					if out, err := l.run(command{Op: "confirm"}); err == nil {
						t.Errorf("it is confirmed: %s", out)
					}
					l.wantHolds(before)
				}
				check()
				relieve()
				check()
				check()
			})
		})
	}
}

// TestGoingBackWhereTheSwitchWasNotWritten: the disk takes no more between the switch
// and the end of the change.
func TestGoingBackWhereTheSwitchWasNotWritten(t *testing.T) {
	eachRefusal(t, func(t *testing.T, l *lab, refuse, relieve func()) {
		l.must(command{Op: "apply", Policy: "a"})
		hold := filepath.Join(t.TempDir(), "hold")
		p := l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "apply", Policy: "b", Confirm: time.Hour, Hold: hold, HoldAt: "verified"})...)
		await(t, "the rules are read back", func() bool { return exists(hold) })
		end := l.openTrial(journalFile, generationName(2))
		refuse()
		if err := os.Remove(hold); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if out := p.Output(); !strings.Contains(out, "until then a boot loads generation 1") {
			t.Errorf("it says: %s", out)
		}
		l.wantHolds("b")
		end()
		l.await("a")
		if s := l.status(); s.Pending != nil || !s.Fine() || s.Generation.Number != 1 {
			t.Errorf("status: %+v", s)
		}
		relieve()
		if s := l.status(); s.Pending != nil || !s.Fine() || s.Generation.Number != 1 {
			t.Errorf("with room again: %+v", s)
		}
	})
}

// TestConfirmThatCannotBeWritten keeps the policy until the next boot, and says what
// that loads.
func TestConfirmThatCannotBeWritten(t *testing.T) {
	for _, later := range []string{"written later", "never written"} {
		t.Run(later, func(t *testing.T) {
			eachRefusal(t, func(t *testing.T, l *lab, refuse, relieve func()) {
				l.onTrial()
				_, cur, err := (&Host{Dir: l.dir}).peek()
				if err != nil {
					t.Fatal(err)
				}
				end := l.openTrial(currentFile)
				refuse()
				for range 2 {
					out, err := l.run(command{Op: "confirm"})
					if err == nil || !strings.Contains(out, "generation 2 is kept, but its confirmation cannot be written") || !strings.Contains(out, "the next boot loads generation 1") {
						t.Fatalf("%v: %s", err, out)
					}
				}
				end()
				for _, pid := range []int{cur.Pending.PID, cur.Pending.Spare} {
					await(t, "no watcher is left", func() bool { return !watches(pid, cur.Pending.Token) })
				}
				l.wantHolds("b")
				if s := l.status(); s.Pending != nil || s.Condition != Running || s.Generation.Number != 2 || s.Boot != 1 {
					t.Errorf("status: %+v", s)
				}
				boots := "a"
				if later == "written later" {
					relieve()
					boots = "b"
					if out := l.must(command{Op: "confirm"}); !strings.Contains(out, "is written now") {
						t.Errorf("it says: %s", out)
					}
					if s := l.status(); s.Pending != nil || !s.Fine() || s.Boot != 2 {
						t.Errorf("with room again: %+v", s)
					}
				} else {
					relieve()
				}
				l.reboot()
				if what, said := l.boots(); what != boots {
					t.Errorf("the next boot loads %q: %s", what, said)
				}
			})
		})
	}
}

// TestKeptPolicyIsConfirmedLater: the disk takes something again right behind the
// confirmation that it did not take.
func TestKeptPolicyIsConfirmedLater(t *testing.T) {
	eachRefusal(t, func(t *testing.T, l *lab, refuse, relieve func()) {
		l.onTrial()
		refuse()
		hold := filepath.Join(t.TempDir(), "hold")
		p := l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "confirm", Hold: hold, HoldAt: "kept"})...)
		await(t, "it is kept in the kernel alone", func() bool { return exists(hold) })
		relieve()
		if err := os.Remove(hold); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if out := p.Output(); !strings.Contains(out, "generation 2 is kept, but its confirmation cannot be written") {
			t.Fatalf("it says: %s", out)
		}
		if out := l.must(command{Op: "confirm"}); !strings.Contains(out, "is written now") {
			t.Errorf("confirmed again, it says: %s", out)
		}
		if s := l.status(); s.Pending != nil || !s.Fine() || s.Boot != 2 {
			t.Errorf("with room again: %+v", s)
		}
		if out, err := l.run(command{Op: "confirm"}); err == nil || !strings.Contains(out, "no policy waits") {
			t.Errorf("a third time: %v %s", err, out)
		}
		l.reboot()
		if what, said := l.boots(); what != "b" {
			t.Errorf("the next boot loads %q: %s", what, said)
		}
	})
}

// TestGivenUpWithoutADisk: a roll-back of what waits needs no file either.
func TestGivenUpWithoutADisk(t *testing.T) {
	eachRefusal(t, func(t *testing.T, l *lab, refuse, relieve func()) {
		l.onTrial()
		refuse()
		l.must(command{Op: "rollback", N: Before})
		for range 2 {
			l.wantHolds("a")
			if s := l.status(); s.Pending != nil || !s.Fine() || s.Generation.Number != 1 {
				t.Errorf("status: %+v", s)
			}
		}
		relieve()
		if s := l.status(); s.Pending != nil || !s.Fine() || s.Generation.Number != 1 {
			t.Errorf("with room again: %+v", s)
		}
	})
}
