package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
	"sluice/internal/system/kernel/process"
)

const (
	lockFile = "lock"
	nextFile = "lock.next"
)

// BusyError says that another command holds the lock.
type BusyError struct {
	Holder string // "process 812 (sluice apply web.yaml)", "another sluice" where it cannot be told
}

func (e *BusyError) Error() string { return e.Holder + " is changing the firewall" }

// Waiting tells who waits for it what for.
func (e *BusyError) Waiting(most time.Duration) string {
	return fmt.Sprintf("waiting at most %s for %s", most, e.Holder)
}

// lock is an flock(2) on the state directory, which is there whatever the disk takes,
// and on a file in it, which root alone may open and which older versions lock alone.
// The programs that a backend runs to change the kernel are given the open files, so that
// the lock stands until the last of them has ended, even when this process was killed. No
// other program has them: this process may hold the locks of several hosts at once.
//
// Whoever may read a file may keep it locked. What only processes of other users hold is
// skipped, as long as the other of the two is had.
//
// Whoever waits holds an flock of a third file, and who comes behind asks for that first:
// else who takes the lock again and again, such as an agent that bans, would leave the
// others next to no moment to find it free. It is a courtesy, and bounded: who waits may
// be stopped.
type lock struct{ folder, file, next *os.File } // each may be nil

const (
	lockTick   = 50 * time.Millisecond // how often a held lock is asked for again
	holderTick = time.Second           // how often its holders are looked for, in all processes
	courtesy   = time.Second           // how long somebody else is let go first
)

// takeLock waits at most so long; waiting is called once when it has to wait.
func takeLock(ctx context.Context, dir string, wait time.Duration, waiting func(holder string)) (*lock, error) {
	l, err := openLock(dir)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	begun := time.Now()
	deadline := begun.Add(wait)
	var looked time.Time
	for told := false; ; {
		over := time.Now().After(deadline)
		look := over || time.Since(looked) > holderTick
		if look {
			looked = time.Now()
		}
		err := l.turn()
		lets := errors.Is(err, unix.EWOULDBLOCK) && time.Since(begun) < courtesy
		if !lets {
			err = l.try(look)
		}
		if err == nil {
			l.pass()
			return l, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			l.release()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if !told && !lets && waiting != nil {
			waiting(l.holder())
			told = true
		}
		if over && !lets {
			err := &BusyError{Holder: l.holder()}
			l.release()
			return nil, err
		}
		select {
		case <-ctx.Done():
			l.release()
			return nil, fmt.Errorf("wait for the lock: %w", ctx.Err())
		case <-time.After(lockTick):
		}
	}
}

// openLock opens what is there to be locked, the file on a disk that cannot be written
// to read.
func openLock(dir string) (*lock, error) {
	path := filepath.Join(dir, lockFile)
	file, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		file, _ = regular.OpenFile(path, unix.O_NOFOLLOW, 0)
	} else {
		_ = file.Chmod(0o600) // which a copy of the state may not have
	}
	folder, folderErr := os.Open(dir)
	if file == nil && folder == nil {
		return nil, errors.Join(err, folderErr)
	}
	next, _ := regular.OpenFile(filepath.Join(dir, nextFile), os.O_RDWR|os.O_CREATE, 0o600)
	return &lock{folder, file, next}, nil
}

// turn says whether this is who goes next.
func (l *lock) turn() error {
	if l.next == nil {
		return nil
	}
	return unix.Flock(int(l.next.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// pass lets another go next.
func (l *lock) pass() { unlock(&l.next) }

// unlock lets go of a file. A program that is being started by another part of this
// process has all open files for a moment, until it runs: so closing alone is too late.
func unlock(f **os.File) {
	if *f != nil {
		_ = unix.Flock(int((*f).Fd()), unix.LOCK_UN)
		_ = (*f).Close()
		*f = nil
	}
}

// try locks all that can be locked. A file system may refuse to lock a folder (NFS):
// then the file alone is locked, by all commands. With look, so is what others than
// root keep locked.
func (l *lock) try(look bool) error {
	var refused error
	locked := false
	for _, f := range l.files() {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			locked = true
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EWOULDBLOCK) && !(look && keptByOthers(f)):
			return err
		default:
			refused = err
		}
	}
	if locked {
		return nil
	}
	return refused
}

// files are those that are open.
func (l *lock) files() []*os.File {
	return slices.DeleteFunc([]*os.File{l.folder, l.file}, func(f *os.File) bool { return f == nil })
}

// release lets go of the lock.
func (l *lock) release() {
	if l == nil {
		return
	}
	unlock(&l.next)
	unlock(&l.file)
	unlock(&l.folder)
}

// holder is who took the lock and holds it, for a reader.
func (l *lock) holder() string {
	holders := lockTakers(l.files()...)
	if len(holders) == 0 {
		holders = lockHolders(l.files()...)
	}
	for _, pid := range holders {
		started := func(ancestor int) bool { return slices.Contains(holders, ancestor) }
		if slices.ContainsFunc(process.Ancestors(pid)[1:], started) {
			continue
		}
		program, arguments, _ := strings.Cut(process.Title(pid), " ")
		title := strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return -1
			}
			return r
		}, strings.TrimSpace(filepath.Base(program)+" "+arguments))
		return fmt.Sprintf("process %d (%.200s)", pid, title)
	}
	return "another sluice"
}

// keptByOthers says whether a locked file is held by processes of other users alone, who
// cannot be changing the firewall.
func keptByOthers(f *os.File) bool {
	ours := func(pid int) bool { return process.User(pid) == os.Getuid() }
	if slices.ContainsFunc(lockTakers(f), ours) {
		return false
	}
	holders := lockHolders(f)
	return len(holders) > 0 && !slices.ContainsFunc(holders, ours)
}

// lockTakers are those of lockHolders that the kernel knows to have taken the lock
// themselves, which looks into them alone: a process that was given the open file, and
// outlives who took it, is not among them. Lines of /proc/locks end in
// "FLOCK ADVISORY WRITE 812 fe:01:4711 0 EOF" (lock_get_status in fs/locks.c).
func lockTakers(files ...*os.File) []int {
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil
	}
	var takers []int
	for _, file := range locked(files) {
		node := fmt.Sprintf(":%d", file.Ino)
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			i := slices.Index(fields, "FLOCK")
			if i < 0 || len(fields) < i+5 || !strings.HasSuffix(fields[i+4], node) {
				continue
			}
			if pid, err := strconv.Atoi(fields[i+3]); err == nil && pid > 0 && holds(pid, file) {
				takers = append(takers, pid)
			}
		}
	}
	return takers
}

// locked are the files as the kernel knows them.
func locked(files []*os.File) (all []unix.Stat_t) {
	for _, f := range files {
		var at unix.Stat_t
		if unix.Fstat(int(f.Fd()), &at) == nil {
			all = append(all, at)
		}
	}
	return all
}

// lockHolders are the processes that hold a lock of one of the files: the command that
// took it and what it has started.
func lockHolders(files ...*os.File) []int {
	at := locked(files)
	all, _ := process.All() // none are seen where they cannot be listed
	return slices.DeleteFunc(all, func(pid int) bool {
		return !slices.ContainsFunc(at, func(file unix.Stat_t) bool { return holds(pid, file) })
	})
}

// holds says whether a process has a descriptor by which a file is locked; those who
// wait for the lock have one by which it is not. fdinfo tells them apart
// (show_fd_locks in fs/proc/fd.c, since Linux 4.1).
func holds(pid int, file unix.Stat_t) bool {
	dir := fmt.Sprintf("/proc/%d/", pid)
	entries, err := os.ReadDir(dir + "fd")
	if err != nil {
		return false
	}
	for _, e := range entries {
		var have unix.Stat_t
		if unix.Stat(dir+"fd/"+e.Name(), &have) != nil || have.Dev != file.Dev || have.Ino != file.Ino {
			continue
		}
		if info, err := os.ReadFile(dir + "fdinfo/" + e.Name()); err == nil && strings.Contains(string(info), "FLOCK") {
			return true
		}
	}
	return false
}
