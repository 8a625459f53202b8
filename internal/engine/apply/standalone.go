package apply

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// standAlone takes the process out of what ends a login: its session (done by
// who started it), its cgroups, and the choice of the out-of-memory killer.
// What the machine does not allow is left: the watcher works all the same.
func standAlone() {
	pid := strconv.Itoa(os.Getpid())
	for _, root := range cgroupRoots("/proc/self/mountinfo") {
		if writeTo(filepath.Join(root, "cgroup.procs"), pid) == nil {
			continue
		}
		// In a container the root may refuse processes of its own.
		own := filepath.Join(root, "sluice-confirm")
		if err := os.Mkdir(own, 0o755); err == nil || os.IsExist(err) {
			_ = writeTo(filepath.Join(own, "cgroup.procs"), pid)
		}
	}
	_ = writeTo("/proc/self/oom_score_adj", "-1000")
}

func writeTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// cgroupRoots lists where cgroup hierarchies are mounted, of both versions.
func cgroupRoots(mountinfo string) []string {
	file, err := os.Open(mountinfo)
	if err != nil {
		return nil
	}
	defer file.Close()
	var roots []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// proc_pid_mountinfo(5): fields, " - ", type, source, options
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !found || len(fields) < 5 {
			continue
		}
		if kind, _, _ := strings.Cut(after, " "); kind == "cgroup" || kind == "cgroup2" {
			roots = append(roots, fields[4])
		}
	}
	return roots
}

// lockHolders are the other processes that hold the lock of a state directory: the
// command that took it and what it has started.
func lockHolders(dir string) []int {
	var locked []unix.Stat_t
	for _, path := range []string{dir, filepath.Join(dir, lockFile)} {
		var at unix.Stat_t
		if unix.Stat(path, &at) == nil {
			locked = append(locked, at)
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var holders []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if slices.ContainsFunc(locked, func(at unix.Stat_t) bool { return holds(pid, at) }) {
			holders = append(holders, pid)
		}
	}
	return holders
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
