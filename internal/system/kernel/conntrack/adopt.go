package conntrack

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/sysctl"
)

// ErrNoRoom says that the table may not take so many entries more.
var ErrNoRoom = errors.New("the connection table would be more than half full")

// Adopt makes the entries of flows that run, in the state that the flows say, and says
// how many there were to make. What the table has of a flow, in either direction or
// behind NAT, stays as it is. The table is filled to its half at most: then the error is
// ErrNoRoom. It loads the modules of connection tracking where they are not loaded.
func Adopt(flows []Flow) (made int, err error) {
	if len(flows) == 0 {
		return 0, nil
	}
	// Any request makes the kernel load what it needs for an answer, and with it the
	// limit of the table.
	if _, err := Known(flows[0]); err != nil {
		return 0, err
	}
	room, err := roomLeft()
	if err != nil {
		return 0, err
	}
	return adoptWithin(flows, room)
}

func adoptWithin(flows []Flow, room int) (made int, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, fmt.Errorf("open a netlink socket: %w", err)
	}
	defer conn.Close()
	// An error that repeats the request would fill the socket's buffer; where the
	// kernel is too old for this option, it is large enough anyway.
	_ = conn.SetOption(netlink.CapAcknowledge, true)
	// No more at once than fit: how many of them are new is known behind them.
	for len(flows) > 0 {
		if room <= 0 {
			return made, ErrNoRoom
		}
		group := flows[:min(len(flows), atOnce, room)]
		flows = flows[len(group):]
		n, err := adopt(conn, group)
		made, room = made+n, room-n
		if err != nil {
			return made, fmt.Errorf("make entries in the connection table: %w", err)
		}
	}
	return made, nil
}

// roomLeft is how many entries the table has until half of what it may have. In a
// namespace the limit is the machine's.
func roomLeft() (int, error) {
	text, err := sysctl.Read("net.netfilter.nf_conntrack_max")
	if err != nil {
		return 0, err
	}
	most, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read sysctl net.netfilter.nf_conntrack_max: %w", err)
	}
	have, err := Count()
	if err != nil {
		return 0, err
	}
	return most/2 - int(have), nil //nolint:gosec // the kernel's own numbers are below 2^31
}

// adopt makes one group of entries, and says how many were not there.
func adopt(conn *netlink.Conn, group []Flow) (made int, err error) {
	// With Excl the kernel changes no entry that is there.
	last, err := send(conn, group, netlink.Excl)
	if err != nil {
		return 0, err
	}
	made = len(group)
	for {
		sequence, number, err := receive(conn)
		switch {
		case err != nil:
			return 0, err
		case number == unix.EEXIST:
			made--
		case number != 0:
			return made, number
		}
		if sequence == last {
			return made, nil
		}
	}
}

// TCPSeconds is how long entries of TCP live, established and with one side closed;
// the kernel's own figures (net/netfilter/nf_conntrack_proto_tcp.c) where it cannot be
// read.
func TCPSeconds() (established, closing uint32) {
	read := func(name string, otherwise uint32) uint32 {
		text, err := sysctl.Read("net.netfilter.nf_conntrack_tcp_timeout_" + name)
		if n, parseErr := strconv.ParseUint(text, 10, 32); err == nil && parseErr == nil {
			return uint32(n)
		}
		return otherwise
	}
	return read("established", 5*24*3600), read("close_wait", 60)
}
