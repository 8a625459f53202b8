package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// flood fills the connection table of a namespace with real TCP connections,
// each opened and then forgotten by both ends without a word, as hosts that are
// switched off do. What stays of each is an entry in the state ESTABLISHED, marked
// as assured. The kernel evicts entries of connections that were closed once 95 %
// of the table are in use (gc_worker_can_early_drop); it keeps these.
type flood struct {
	from    *testnet.Namespace
	sources []netip.Addr // addresses of from; each gives some ten thousand ports
	to      netip.AddrPort
	at      *testnet.Namespace // whose table is filled, and who serves to
	workers int
}

// start opens connections until the context ends: it fills the table and keeps
// it full. The count of connections grows meanwhile; wait returns when the last
// worker has ended.
func (f *flood) start(ctx context.Context) (opened *atomic.Int64, wait func()) {
	opened = new(atomic.Int64)
	var group sync.WaitGroup
	for worker := range f.workers {
		group.Go(func() {
			_ = f.from.Do(func() error {
				for i := worker; ctx.Err() == nil; i += f.workers {
					if connectAndForget(f.sources[i%len(f.sources)], f.to) == nil {
						opened.Add(1)
					}
				}
				return nil
			})
		})
	}
	return opened, group.Wait
}

// awaitFull waits until the table has been full for a second on end: by then
// the kernel has evicted what it may evict.
func (f *flood) awaitFull(ctx context.Context, limit int) error {
	const tick = 20 * time.Millisecond
	for full := time.Duration(0); full < time.Second; {
		used, err := f.at.SysctlNumber("net.netfilter.nf_conntrack_count")
		if err != nil {
			return err
		}
		if full += tick; used < limit {
			full = 0
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the table took %d of %d entries in time", used, limit)
		case <-time.After(tick):
		}
	}
	return nil
}

// serve accepts connections at the flood's goal and forgets them, until the context
// ends.
func (f *flood) serve(ctx context.Context) error {
	listener, err := f.at.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), f.to.Port()).String())
	if err != nil {
		return fmt.Errorf("listen at %s: %w", f.to, err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if tcp, is := c.(*net.TCPConn); is {
				if raw, err := tcp.SyscallConn(); err == nil {
					_ = raw.Control(func(fd uintptr) { _ = repair(int(fd)) })
				}
				_ = tcp.Close()
			}
		}
	}()
	return nil
}

// connectAndForget makes one connection and forgets it; SYN, SYN with ACK and ACK
// cross the firewall.
func connectAndForget(from netip.Addr, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// the port is chosen at connect, when the other end is known
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 200_000}),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4()}),
		unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}),
	)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return forget(fd)
}

// forget closes a connection and sends nothing.
func forget(fd int) error { return errors.Join(repair(fd), unix.Close(fd)) }

// repair puts a connection into the mode (TCP_REPAIR of net/ipv4/tcp.c) in which the
// kernel says neither FIN nor RST where it is closed.
func repair(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, 1) }
