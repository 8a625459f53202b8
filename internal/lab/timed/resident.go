package timed

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// residentTree is how many bytes a process and its descendants have resident now.
// What has ended meanwhile counts nothing, and what a child shares with the process that
// starts it, until it is another program (vfork), counts once.
func residentTree(pid int) int64 {
	sum := resident(pid)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return sum
	}
	for _, t := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil && !sameMemory(pid, n) {
				sum += residentTree(n)
			}
		}
	}
	return sum
}

// sameMemory says whether two processes have one address space.
func sameMemory(a, b int) bool {
	const memory = 1 // KCMP_VM of linux/kcmp.h
	order, _, err := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), memory, 0, 0, 0)
	return err == 0 && order == 0
}

// resident reads the second field of /proc/PID/statm, in pages.
func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// TimeOf is the processor time of processes that run, with the children that they
// waited for.
func TimeOf(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		p, err := procfs.NewProc(pid)
		if err != nil {
			continue
		}
		if s, err := p.Stat(); err == nil {
			sum += time.Duration(int(s.UTime+s.STime)+s.CUTime+s.CSTime) * time.Second / ticks
		}
	}
	return sum
}

// ticks is how many units of /proc/PID/stat a second has on Linux (USER_HZ).
const ticks = 100

// PeakOf is the most bytes that processes which run have had resident, each since it
// began (VmHWM of /proc/PID/status).
func PeakOf(pids []int) (sum int64) {
	for _, pid := range pids {
		p, err := procfs.NewProc(pid)
		if err != nil {
			continue
		}
		if s, err := p.NewStatus(); err == nil {
			sum += int64(s.VmHWM)
		}
	}
	return sum
}
