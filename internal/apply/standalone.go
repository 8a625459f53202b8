package apply

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
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

// lockHolders are the processes that may hold the lock: who signed it, and what
// runs nft with the lock's file open on its behalf.
func lockHolders(path string, signed int) []int {
	var want unix.Stat_t
	if err := unix.Stat(path, &want); err != nil {
		return nil
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
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if pid != signed && strings.TrimSpace(string(name)) != "nft" {
			continue
		}
		if hasOpen(pid, want) {
			holders = append(holders, pid)
		}
	}
	return holders
}

func hasOpen(pid int, want unix.Stat_t) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		var have unix.Stat_t
		if unix.Stat(filepath.Join(dir, e.Name()), &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino {
			return true
		}
	}
	return false
}
