package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Event is what happened to an entry.
type Event int

// What may happen to it. An update is a new state, mark or status, and no packet alone.
const (
	Made Event = iota
	Updated
	Destroyed
)

// Events are what happens to entries, as the kernel tells it to a socket. What is not read in
// time the kernel throws away, and counts.
type Events struct {
	conn   *netlink.Conn
	raw    syscall.RawConn
	missed uint32 // by the kernel's count when it was asked last
}

// eventBytes is what the kernel keeps of what is not read yet: an event takes some 1.3 KiB of twice this.
const eventBytes = 2 << 20

// eventGroups are the multicast groups, enum nfnetlink_groups of
// include/uapi/linux/netfilter/nfnetlink.h.
var eventGroups = map[Event]uint32{Made: 1, Updated: 2, Destroyed: 3}

// OpenEvents listens for events of these kinds in the network namespace of the calling
// thread; they may be read by any. The caller closes it.
func OpenEvents(kinds ...Event) (*Events, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	_ = conn.SetReadBuffer(eventBytes) // as much as there may be
	e := &Events{conn: conn}
	e.raw, err = conn.SyscallConn()
	for i := 0; i < len(kinds) && err == nil; i++ {
		err = conn.JoinGroup(eventGroups[kinds[i]])
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen for events of the connection table: %w", err)
	}
	return e, nil
}

// Close closes the socket.
func (e *Events) Close() error { return e.conn.Close() }

// Read gives the events to see, one after the other, until the context ends. The entry is
// see's until it returns, and has what the event says of it: the state of TCP where it
// changed, counters where it ends. Missed is told how many events of these kinds were thrown
// away.
func (e *Events) Read(ctx context.Context, see func(Event, *Entry) error, missed func(uint32)) error {
	defer context.AfterFunc(ctx, func() { _ = e.conn.SetReadDeadline(time.Now()) })()
	part, entry := make([]byte, partBytes), new(Entry)
	behind := false
	for {
		n, err := e.read(part, func() error {
			// Once the kernel has thrown one away it throws all away until all that it kept is
			// read, and does not tell of it again (netlink_broadcast_deliver).
			if !behind {
				return nil
			}
			behind = false
			return e.count(missed)
		})
		switch {
		case ctx.Err() != nil:
			return e.count(missed)
		case errors.Is(err, unix.ENOBUFS):
			behind = true
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("read events of the connection table: %w", err)
		}
		if err := parseEvents(part[:n], entry, see); err != nil {
			return err
		}
	}
}

// read reads one part, and calls empty before it waits for one.
func (e *Events) read(part []byte, empty func() error) (n int, err error) {
	var failure error
	err = e.raw.Read(func(fd uintptr) bool {
		n, failure = unix.Read(int(fd), part)
		if errors.Is(failure, unix.EAGAIN) {
			failure = empty()
			return failure != nil
		}
		return true
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, err
	}
	return n, errors.Join(err, failure)
}

// count tells how many events the kernel has thrown away since it was asked last.
func (e *Events) count(missed func(uint32)) error {
	// struct sk_meminfo, SK_MEMINFO_DROPS of include/uapi/linux/sock_diag.h.
	const drops = 8
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	var errno unix.Errno
	err := e.raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // there is no other way
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return fmt.Errorf("count missed events of the connection table: %w", err)
	}
	if n := info[drops] - e.missed; n > 0 {
		e.missed = info[drops]
		missed(n)
	}
	return nil
}

// parseEvents reads the messages of one part, each into e.
func parseEvents(data []byte, e *Entry, see func(Event, *Entry) error) error {
	for len(data) >= unix.SizeofNlMsghdr {
		m, rest, err := message(data)
		if err != nil {
			return err
		}
		data = rest
		var what Event
		switch kind, flags := binary.NativeEndian.Uint16(m[4:]), binary.NativeEndian.Uint16(m[6:]); {
		case kind == unix.NFNL_SUBSYS_CTNETLINK<<8|messageNew && flags&unix.NLM_F_CREATE != 0:
			what = Made
		case kind == unix.NFNL_SUBSYS_CTNETLINK<<8|messageNew:
			what = Updated
		case kind == unix.NFNL_SUBSYS_CTNETLINK<<8|messageDelete:
			what = Destroyed
		default:
			continue
		}
		*e = Entry{}
		if err := e.parse(m[unix.SizeofNlMsghdr:]); err != nil {
			return err
		}
		if err := see(what, e); err != nil {
			return err
		}
	}
	return nil
}

func (w Event) String() string {
	if words := [...]string{"new", "update", "destroy"}; w >= 0 && int(w) < len(words) {
		return words[w]
	}
	return "event " + strconv.Itoa(int(w))
}
