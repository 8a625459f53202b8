package statistics

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Throttled is how often the processes of a control group had used up their quota of
// processor time, and how long they waited for more, all processors together
// (Documentation/scheduler/sched-bwc.rst).
type Throttled struct {
	Times  uint64
	Waited time.Duration
}

// Quotas are the folders in which control groups with the controller cpu may be: of version
// 2, and of version 1.
var quotas = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}

// mostGroups bounds how many are read.
const mostGroups = 20_000

// ThrottledGroups reads that of all control groups that have a quota, by their folders;
// fs.ErrNotExist where no folder of control groups is to be seen.
func ThrottledGroups() (map[string]Throttled, error) {
	for _, root := range quotas {
		if _, err := os.Stat(filepath.Join(root, "cpu.stat")); err == nil {
			return throttledGroups(root)
		}
	}
	return nil, fmt.Errorf("control groups in %s: %w", quotas[0], fs.ErrNotExist)
}

func throttledGroups(root string) (map[string]Throttled, error) {
	out := map[string]Throttled{}
	read := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is gone
		}
		if err != nil || !d.IsDir() {
			return err
		}
		if read++; read > mostGroups {
			return fs.SkipAll
		}
		text, err := os.ReadFile(filepath.Join(path, "cpu.stat"))
		if err != nil {
			return nil //nolint:nilerr // gone, or without the controller
		}
		if t, has := parseThrottled(string(text)); has {
			out[path] = t
		}
		return nil
	})
	return out, err
}

// parseThrottled reads cpu.stat; false where there is no quota, or never was.
func parseThrottled(text string) (t Throttled, has bool) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			continue
		}
		switch name {
		case "nr_periods":
			has = n > 0
		case "nr_throttled":
			t.Times = n
		case "throttled_usec": // version 2
			t.Waited = time.Duration(min(n, 1<<52)) * time.Microsecond //nolint:gosec // below 2^63
		case "throttled_time": // version 1, ns
			t.Waited = time.Duration(n) //nolint:gosec // below 2^63
		}
	}
	return t, has
}

// GroupProcesses are the processes in a control group's folder and below it.
func GroupProcesses(folder string) (pids []int) {
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it is gone
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil //nolint:nilerr // gone, or of threads
		}
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}
