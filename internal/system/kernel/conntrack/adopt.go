package conntrack

import (
	"encoding/binary"
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
	// kernel is too old for this option, it is large enough all the same.
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

// adopt makes one group of entries.
func adopt(conn *netlink.Conn, group []Flow) (made int, err error) {
	messages := make([]netlink.Message, len(group))
	for i, f := range group {
		if messages[i], err = f.message(); err != nil {
			return 0, err
		}
		// Without it, the kernel would change an entry that is there.
		messages[i].Header.Flags |= netlink.Excl
	}
	// The last is acknowledged; of the others the kernel answers mistakes alone.
	messages[len(messages)-1].Header.Flags |= netlink.Acknowledge
	sent, err := conn.SendMessages(messages)
	if err != nil {
		return 0, err
	}
	made = len(group)
	last := sent[len(sent)-1].Header.Sequence
	for {
		sequence, number, err := outcome(conn)
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

// outcome reads the kernel's answer to one request.
func outcome(conn *netlink.Conn) (sequence uint32, number unix.Errno, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	buffer := make([]byte, 1<<13)
	var n int
	var failure error
	err = raw.Read(func(fd uintptr) bool {
		n, _, failure = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
		return !errors.Is(failure, unix.EAGAIN)
	})
	if err = errors.Join(err, failure); err != nil {
		return 0, 0, err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(buffer[4:]) != unix.NLMSG_ERROR {
		return 0, 0, errors.New("the kernel gives another answer than one")
	}
	code := int32(binary.NativeEndian.Uint32(buffer[unix.SizeofNlMsghdr:])) //nolint:gosec // the kernel's own sign
	return binary.NativeEndian.Uint32(buffer[8:]), unix.Errno(-code), nil   //nolint:gosec // the same
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
