package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

const lockFile = "lock"

// BusyError says that another command holds the lock.
type BusyError struct {
	Holder string // "process 812 (sluice apply web.yaml)", "" when it cannot be told
}

func (e *BusyError) Error() string {
	who := e.Holder
	if who == "" {
		who = "another sluice"
	}
	return who + " is changing the firewall"
}

// lock is an flock(2) on the state directory, which is there whatever the disk takes,
// and on a file in it, which holds the signature and which older versions lock alone.
// The programs that a backend runs to change the kernel are given the open files, so that the lock
// stands until the last of them has ended, even when this process was killed. No other
// program has them: this process may hold the locks of several hosts at once.
type lock struct{ folder, file *os.File } // either may be nil

// lockTick is how often a held lock is asked for again.
const lockTick = 50 * time.Millisecond

// takeLock waits at most so long; waiting is called once when it has to wait.
func takeLock(ctx context.Context, dir string, wait time.Duration, waiting func(holder string)) (*lock, error) {
	path := filepath.Join(dir, lockFile)
	l, err := openLock(dir)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	deadline := time.Now().Add(wait)
	for told := false; ; {
		err := l.try()
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			l.release()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if !told && waiting != nil {
			waiting(holderOf(path))
			told = true
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			l.release()
			return nil, &BusyError{Holder: holderOf(path)}
		}
		time.Sleep(lockTick)
	}
	l.sign()
	return l, nil
}

// openLock opens what is there to be locked, the file on a disk that cannot be written
// to read.
func openLock(dir string) (*lock, error) {
	path := filepath.Join(dir, lockFile)
	file, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		file, _ = regular.Open(path)
	}
	folder, folderErr := os.Open(dir)
	if file == nil && folder == nil {
		return nil, errors.Join(err, folderErr)
	}
	return &lock{folder, file}, nil
}

// try locks all that can be locked. A file system may refuse to lock a folder (NFS):
// then the file alone is locked, by all commands.
func (l *lock) try() error {
	err := flock(l.folder)
	if l.file == nil || errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return err
	}
	return flock(l.file)
}

func flock(f *os.File) error {
	if f == nil {
		return nil
	}
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// files are those that are open.
func (l *lock) files() []*os.File {
	return slices.DeleteFunc([]*os.File{l.folder, l.file}, func(f *os.File) bool { return f == nil })
}

// sign writes who holds the lock, for the reader and for who finds it stuck. A full
// disk may not take it; so the old text is written over before the file is cut.
func (l *lock) sign() {
	if l.file == nil {
		return
	}
	command := strings.Join(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), " ")
	text := fmt.Sprintf("%d %s\n", os.Getpid(), command)
	if _, err := l.file.WriteAt([]byte(text), 0); err == nil {
		_ = l.file.Truncate(int64(len(text)))
	}
}

// release lets go of the lock. A program that is being started by another part of this
// process has all open files for a moment, until it runs: so closing alone is too late.
func (l *lock) release() {
	if l == nil {
		return
	}
	for _, f := range []**os.File{&l.file, &l.folder} {
		if *f != nil {
			_ = unix.Flock(int((*f).Fd()), unix.LOCK_UN)
			_ = (*f).Close()
			*f = nil
		}
	}
}

// holderOf reads who signed the lock last.
func holderOf(path string) string {
	pid, command := readSignature(path)
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf("process %d (%s)", pid, command)
}

func readSignature(path string) (pid int, command string) {
	text, err := regular.Read(path, mostRecord)
	if err != nil {
		return 0, ""
	}
	line := strings.TrimSpace(string(text))
	if _, err := fmt.Sscanf(line, "%d", &pid); err != nil {
		return 0, ""
	}
	_, command, _ = strings.Cut(line, " ")
	return pid, command
}
