package apply

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// standAlone takes the process out of what ends a login: its session (done by
// whoever started it), its cgroups, and the choice of the out-of-memory killer.
// What the machine does not allow is left: the watcher works anyway.
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
