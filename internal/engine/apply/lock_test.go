package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	waited := 0
	_, err = takeLock(t.Context(), dir, 100*time.Millisecond, func(string) { waited++ })
	var busy *BusyError
	if !errors.As(err, &busy) || !strings.Contains(busy.Holder, "process ") || waited != 1 {
		t.Errorf("a held lock: %v, told %d times", err, waited)
	}
	held.release()
	held.release()
	again, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.release()
}

// TestLockGoesRound: who takes the lock again and again lets others have it, and who waits
// and is stopped keeps nobody from it.
func TestLockGoesRound(t *testing.T) {
	dir := t.TempDir()
	var got atomic.Bool
	done := make(chan error)
	go func() {
		l, err := takeLock(t.Context(), dir, time.Hour, func(string) {})
		got.Store(true)
		l.release()
		done <- err
	}()
	for !got.Load() {
		l, err := takeLock(t.Context(), dir, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		l.release()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stopped, err := openLock(dir)
	if err == nil {
		err = stopped.turn()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.release()
	l, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.release()
}

// TestLockIsOne: whether the lock's file can be made may change while a command holds
// the lock.
func TestLockIsOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockFile)
	if err := os.Symlink(filepath.Join(dir, "missing", "x"), path); err != nil {
		t.Fatal(err) // nobody can make the file now
	}
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err = takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("with the file, a second lock is given: %v", err)
	}
	held.release()
	if held, err = takeLock(t.Context(), dir, 0, nil); err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err = takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("without the file, a second lock is given: %v", err)
	}
}

// TestLockOfOlderVersions is that of the file alone.
func TestLockOfOlderVersions(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("a second lock is given: %v", err)
	}
}

// TestLockHolders finds who holds the lock, signed or not, and nobody who waits. What
// ends a process without a word closes its files and unlocks nothing, so that the lock
// is the child's then.
func TestLockHolders(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockFile)
	if err := os.Symlink(filepath.Join(dir, "missing", "x"), path); err != nil {
		t.Fatal(err)
	}
	start := func(l *lock) int {
		t.Helper()
		cmd := exec.Command("sleep", "3600")
		cmd.ExtraFiles = l.files()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	waiting, err := openLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	start(waiting)
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := lockTakers(waiting.files()...); len(got) == 0 || slices.ContainsFunc(got, func(pid int) bool { return pid != os.Getpid() }) {
		t.Errorf("processes %v took it, want %d", got, os.Getpid())
	}
	waiting.release()
	child := start(held)
	for _, f := range held.files() {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	another, err := openLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer another.release()
	if got := lockHolders(another.files()...); !slices.Equal(got, []int{child}) {
		t.Errorf("processes %v hold it, want %d", got, child)
	}
	if got := lockTakers(another.files()...); len(got) != 0 {
		t.Errorf("processes %v took it and hold it, want none", got)
	}
	want := fmt.Sprintf("process %d (sleep 3600) is changing the firewall", child)
	if _, err := takeLock(t.Context(), dir, 0, nil); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var busy *BusyError
	if _, err := takeLock(ctx, dir, time.Hour, nil); !errors.Is(err, context.Canceled) || errors.As(err, &busy) {
		t.Errorf("not waited for: %v", err)
	}
}

// TestLockOfOthers: a user who may read the state cannot keep root from it.
func TestLockOfOthers(t *testing.T) {
	other := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	testnet.Require(t, testnet.Probed("processes of other users", func() error {
		cmd := exec.Command("true")
		cmd.SysProcAttr = other
		return cmd.Run()
	}))
	dir := t.TempDir()
	path := filepath.Join(dir, lockFile)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	keep := func(path string) int {
		t.Helper()
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "3600")
		cmd.ExtraFiles = []*os.File{file}
		cmd.SysProcAttr = other
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	first := keep(dir)
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) {
		t.Errorf("a second lock is given: %v", err)
	}
	held.release()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may lock the file too: %v, %v", info.Mode(), err)
	}
	keep(path)
	if _, err := takeLock(t.Context(), dir, 0, nil); !errors.As(err, &busy) || !strings.HasPrefix(busy.Holder, fmt.Sprintf("process %d ", first)) {
		t.Errorf("what nobody can have is given: %v", err)
	}
}

// TestLockThroughLink: what a link leads to is neither written nor locked.
func TestLockThroughLink(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{lockFile, stepFile} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	held, err := takeLock(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if err := (store{dir: dir}).saveStep("2 of 3"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "kept" {
		t.Errorf("the target has %q, %v", text, err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the target has the mode %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, stepFile)); err != nil || string(text) != "2 of 3" {
		t.Errorf("the step is %q, %v", text, err)
	}
}
