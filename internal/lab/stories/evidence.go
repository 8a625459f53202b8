package stories

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// kernelLog reads what the kernel has logged since it was opened.
type kernelLog struct{ fd int }

// openKernelLog is nil where the log cannot be read, as in a container.
func openKernelLog() *kernelLog {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	return &kernelLog{fd}
}

// lines gives the texts with a word in them, and closes the log.
func (l *kernelLog) lines(word string) (found []string) {
	if l == nil {
		return nil
	}
	defer unix.Close(l.fd)
	buffer := make([]byte, 8192) // CONSOLE_EXT_LOG_MAX of the kernel
	for {
		n, err := unix.Read(l.fd, buffer)
		if err == unix.EPIPE { // some were overwritten: the next read goes on behind them
			continue
		}
		if err != nil || n <= 0 {
			return found
		}
		_, text, _ := strings.Cut(string(buffer[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		if strings.Contains(text, word) {
			found = append(found, text)
		}
	}
}

// ended counts the entries of connections that both ends have closed.
func ended(host *testnet.Namespace) (closed, all int, err error) {
	err = host.Do(func() error {
		entries, err := conntrack.List()
		for _, e := range entries {
			if e.State.Ended() {
				closed++
			}
		}
		all = len(entries)
		return err
	})
	return closed, all, err
}

// fullTable is the evidence that a course suffered from a full connection table; ok
// says that it shows it. Where the kernel drops packets on the bare site too is not
// part of it.
func (c *course) fullTable(limit int, log []string, bare *course) (evidence []string, ok bool, err error) {
	most, dropped := c.mostEntries(), c.counted("drop")
	at, full := c.seen.FullAt(c.space())
	evidence = append(evidence, fmt.Sprintf("net.netfilter.nf_conntrack_count reached %.0f of %d (nf_conntrack_max), first at second %.0f", most, limit, at))
	evidence = append(evidence, fmt.Sprintf("conntrack -S: %d packets dropped for lack of an entry (drop), %d entries thrown out early (early_drop)", dropped, c.counted("early_drop")))
	evidence = append(evidence, c.drops(bare)...)
	if len(log) > 0 {
		evidence = append(evidence, fmt.Sprintf("the kernel's log: %q, %d times (it says so a few times a second at most)", strings.TrimSpace(log[0]), len(log)))
	}
	closed, all, err := ended(c.site.host)
	if err != nil {
		return evidence, false, fmt.Errorf("list the connection table: %w", err)
	}
	evidence = append(evidence, fmt.Sprintf("%d of its %d entries are of connections that both ends have closed already", closed, all))
	seconds, err := c.site.host.GetSysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait")
	var wait float64
	if _, scanErr := fmt.Sscan(seconds, &wait); err == nil && scanErr == nil && wait > 0 {
		evidence = append(evidence, fmt.Sprintf("each of them stays %s s (nf_conntrack_tcp_timeout_time_wait), so %d entries let %.0f new connections a second through in the long run", seconds, limit, float64(limit)/wait))
	}
	return evidence, full && dropped > 0, nil
}
