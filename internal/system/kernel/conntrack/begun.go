package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/sysctl"
)

// Begun counts the connections that begin in one network namespace. The kernel keeps no such
// counter (its "insert" is of entries that programs make), but it reports each new entry
// (NFNLGRP_CONNTRACK_NEW): here to a socket that has no room and that nobody waits at, so
// that what it throws away is counted in the kernel (sk_drops). A connection costs the kernel
// the making of one message, some microseconds, and this process nothing. Where more begin
// than begunMost a second, the socket listens for a part of the time alone, and what began in
// the rest is reckoned from that.
type Begun struct {
	fd   int
	most float64 // messages a second
	done chan struct{}
	over sync.WaitGroup

	mutex   sync.Mutex
	told    uint64    // messages
	dropped uint32    // the kernel's count, of 32 bits, when it was read last
	before  float64   // that began, in all until since
	since   time.Time // the socket listens from then on
	toldBy  uint64    // messages until then
	paused  time.Time // it listens no more from then on; zero: it does
	failed  error     // of listening again
}

const (
	begunMost  = 2000 // of some 5 µs each: 1 % of a processor
	begunSlice = 10 * time.Millisecond
	begunPause = 500 * time.Millisecond // at most
)

// ErrNoEvents says that the kernel reports no new connections.
var ErrNoEvents = errors.New("new connections are not counted: net.netfilter.nf_conntrack_events is 0")

const groupNew = 1 // NFNLGRP_CONNTRACK_NEW, include/uapi/linux/netfilter/nfnetlink.h

// CountBegun begins to count those of the calling thread's network namespace, which needs
// CAP_NET_ADMIN. The caller closes it.
func CountBegun() (*Begun, error) { return countBegun(begunMost) }

func countBegun(most float64) (b *Begun, err error) {
	told, err := sysctl.Read("net.netfilter.nf_conntrack_events")
	if err == nil && told == "0" {
		return nil, ErrNoEvents
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing is tracked yet
		return nil, err
	}
	b = &Begun{most: most, done: make(chan struct{}), since: time.Now()}
	if b.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER); err != nil {
		return nil, fmt.Errorf("count new connections: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(b.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1),
		unix.SetsockoptInt(b.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0), // as little as there may be
		unix.Bind(b.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(b.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNew),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("count new connections: %w", err), unix.Close(b.fd))
	}
	b.over.Go(b.run)
	return b, nil
}

// Close ends the counting.
func (b *Begun) Close() error {
	close(b.done)
	b.over.Wait()
	return unix.Close(b.fd)
}

// Read is how many have begun since CountBegun, of which those are reckoned that began while
// nobody listened.
func (b *Begun) Read() (uint64, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.failed != nil {
		return 0, b.failed
	}
	if err := b.take(); err != nil {
		return 0, err
	}
	return uint64(b.now(time.Now())), nil
}

// now is how many have begun by a time.
func (b *Begun) now(at time.Time) float64 {
	n := float64(b.told - b.toldBy)
	if !b.paused.IsZero() {
		n += n * at.Sub(b.paused).Seconds() / b.paused.Sub(b.since).Seconds()
	}
	return b.before + n
}

// run keeps the socket from listening for longer than may be.
func (b *Begun) run() {
	wait := begunSlice
	for {
		select {
		case <-b.done:
			return
		case <-time.After(wait):
		}
		wait = b.turn()
	}
}

// turn listens, or does not any more, and says for how long.
func (b *Begun) turn() time.Duration {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	if !b.paused.IsZero() {
		b.before, b.since, b.toldBy, b.paused = b.now(now), now, b.told, time.Time{}
		b.failed = unix.SetsockoptInt(b.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNew)
		return begunSlice
	}
	if b.take() != nil { // Read says so
		return begunPause
	}
	n := float64(b.told - b.toldBy)
	rest := n/b.most - now.Sub(b.since).Seconds()
	if rest <= begunSlice.Seconds() || unix.SetsockoptInt(b.fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, groupNew) != nil {
		if now.Sub(b.since) > time.Second { // few then allow no flood now
			b.before, b.since, b.toldBy = b.now(now), now, b.told
		}
		return begunSlice
	}
	b.paused = now
	return min(time.Duration(rest*float64(time.Second)), begunPause)
}

// take counts the messages of the socket.
func (b *Begun) take() error {
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
			return fmt.Errorf("count new connections: %w", err)
		}
		b.told++
	}
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(b.fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return fmt.Errorf("count new connections: %w", errno)
	}
	now := info[unix.SK_MEMINFO_DROPS]
	b.told += uint64(now - b.dropped)
	b.dropped = now
	return nil
}
