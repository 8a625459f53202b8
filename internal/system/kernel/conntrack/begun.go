package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/sysctl"
)

// Begun counts the connections that begin in one network namespace. The kernel keeps no such
// counter (its "insert" is of entries that programs make), but it tells of each new entry
// (NFNLGRP_CONNTRACK_NEW): here to a socket that has no room and that nobody waits at, so
// that what it throws away is counted in the kernel (sk_drops). A connection costs the kernel
// the making of one message, and this process nothing.
type Begun struct {
	fd      int
	taken   uint64 // messages that found room
	dropped uint32 // the kernel's count, of 32 bits, when it was read last
	lost    uint64 // messages that found none
}

// ErrNoEvents says that the kernel tells of no new connections.
var ErrNoEvents = errors.New("new connections are not counted: net.netfilter.nf_conntrack_events is 0")

const groupNew = 1 << 0 // NFNLGRP_CONNTRACK_NEW as a mask, include/uapi/linux/netfilter/nfnetlink_compat.h

// CountBegun begins to count those of the calling thread's network namespace, which needs
// CAP_NET_ADMIN. The caller closes it.
func CountBegun() (b *Begun, err error) {
	told, err := sysctl.Read("net.netfilter.nf_conntrack_events")
	if err == nil && told == "0" {
		return nil, ErrNoEvents
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing is tracked yet
		return nil, err
	}
	b = &Begun{}
	if b.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER); err != nil {
		return nil, fmt.Errorf("count new connections: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(b.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1),
		unix.SetsockoptInt(b.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0), // as little as there may be
	)
	if err == nil {
		err = unix.Bind(b.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groupNew})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("count new connections: %w", err), b.Close())
	}
	return b, nil
}

// Close ends the counting.
func (b *Begun) Close() error { return unix.Close(b.fd) }

// Read is how many have begun since CountBegun. It is for one caller at a time.
func (b *Begun) Read() (uint64, error) {
	var message [1]byte
	for {
		_, _, err := unix.Recvfrom(b.fd, message[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("count new connections: %w", err)
		}
		b.taken++
	}
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(b.fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return 0, fmt.Errorf("count new connections: %w", errno)
	}
	now := info[unix.SK_MEMINFO_DROPS]
	b.lost += uint64(now - b.dropped)
	b.dropped = now
	return b.taken + b.lost, nil
}
