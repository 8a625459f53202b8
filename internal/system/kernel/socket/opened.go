package socket

import (
	"errors"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Opened is how many TCP connections others have opened to the network namespace of the
// calling thread so far: tcpPassiveOpens of RFC 4022. The kernel counts one before it is
// in the table of connections other than as a request (tcp_create_openreq_child in
// net/ipv4/tcp_minisocks.c), so that TCP misses none that was counted before it was called.
func Opened() (uint64, error) {
	threads, err := procfs.NewFS("/proc/self/task")
	if err != nil {
		return 0, err
	}
	thread, err := threads.Proc(unix.Gettid())
	if err != nil {
		return 0, err
	}
	counts, err := thread.Snmp()
	if err != nil {
		return 0, err
	}
	if counts.Tcp.PassiveOpens == nil {
		return 0, errors.New("/proc/net/snmp has no PassiveOpens")
	}
	return uint64(*counts.Tcp.PassiveOpens), nil
}
