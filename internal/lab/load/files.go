package load

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// otherFiles is what a process opens besides the connections of a load.
const otherFiles = 64

// raiseFiles lets this process open as many files as so many connections need.
func raiseFiles(connections int) error {
	need := uint64(connections + otherFiles)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= need {
		return nil
	}
	// Above the hard limit root alone may go, and nobody above fs.nr_open.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: need, Max: max(need, limit.Max)}); err != nil {
		return fmt.Errorf("%d connections need %d open files, and this process may have %d: %w\nhint: raise the limit (ulimit -Hn, LimitNOFILE= of systemd, sysctl fs.nr_open), or give fewer --connections",
			connections, need, limit.Max, err)
	}
	return nil
}
