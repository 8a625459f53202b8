package testnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const runDir = "/run/netns"

// ownName matches the names given by Net.Namespace: sl-PREFIX-LABEL-pPID-NUMBER.
var ownName = regexp.MustCompile(`^sl-[a-z0-9-]+-p([0-9]+)-[0-9]+$`)

// prepareRunDir makes /run/netns, as a mount of its own whose changes other
// mount namespaces see: the way of iproute2, which would otherwise put such a
// mount over names that are in use already, so that they could not be removed.
// In a user namespace /run belongs to somebody else; there it is covered by a
// file system of our own, which only the present mount namespace sees.
func prepareRunDir() error {
	err := os.MkdirAll(runDir, 0o755)
	if err == nil {
		err = unix.Access(runDir, unix.W_OK)
	}
	if err != nil {
		if !inUserNamespace() {
			return fmt.Errorf("make %s: %w", runDir, err)
		}
		if err := coverRun(); err != nil {
			return err
		}
	}
	dir, err := os.Open(runDir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", runDir, err)
	}
	if unix.Mount("", runDir, "none", unix.MS_SHARED|unix.MS_REC, "") == nil {
		return nil
	}
	if err := unix.Mount(runDir, runDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make a mount of %s: %w", runDir, err)
	}
	if err := unix.Mount("", runDir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mount %s: %w", runDir, err)
	}
	return nil
}

func coverRun() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("detach the mount namespace: %w\nhint: in a user namespace, a mount namespace is needed too: unshare -rnm", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("cover /run: %w", err)
	}
	return os.MkdirAll(runDir, 0o755)
}

func inUserNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	var inside, outside, count uint64
	_, err = fmt.Sscan(string(text), &inside, &outside, &count)
	return err == nil && (outside != 0 || count < 1<<32-1)
}

var reapOnce = sync.OnceFunc(func() {
	names, err := filepath.Glob(filepath.Join(runDir, "sl-*"))
	if err != nil {
		return
	}
	for _, path := range names {
		m := ownName.FindStringSubmatch(filepath.Base(path))
		if m == nil {
			continue
		}
		if pid, err := strconv.Atoi(m[1]); err == nil && !processLives(pid) {
			_ = removeName(path)
		}
	}
})

func processLives(pid int) bool {
	return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// removeName ends the processes in a named namespace and removes the name. The
// namespace itself goes with its last user.
func removeName(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil {
		killInside(st.Dev, st.Ino)
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// killInside ends every process whose network namespace is the given one: what
// a test started there, and what that left behind.
func killInside(dev, ino uint64) {
	for _, pid := range processesInside(dev, ino) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processesInside are the ids of the processes whose network namespace is the given
// one. Our own is never among them, since its first thread stays where it was started.
func processesInside(dev, ino uint64) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &st) == nil && st.Dev == dev && st.Ino == ino {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Processes are the ids of the processes inside the namespace.
func (s *Namespace) Processes() ([]int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.handle), &st); err != nil {
		return nil, fmt.Errorf("find the processes in %s: %w", s.label, err)
	}
	return processesInside(st.Dev, st.Ino), nil
}
