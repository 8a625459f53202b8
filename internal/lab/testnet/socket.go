package testnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Patience is how long a try waits when it is not told, so long that a busy machine
// keeps it; the answer ends the wait. Moment is for tries that are to stay silent.
const (
	Patience = time.Minute
	Moment   = 300 * time.Millisecond
)

// socket is a non-blocking socket that keeps the ICMP errors about it.
type socket struct {
	fd       int
	v6       bool
	deadline time.Time
}

// openSocket makes a socket in the present namespace. The source may be the
// zero value; it may be an address that no device has (IP_FREEBIND).
func openSocket(to netip.Addr, kind, proto int, from netip.AddrPort, device string, patience time.Duration) (*socket, error) {
	if patience == 0 {
		patience = Patience
	}
	s := &socket{v6: to.Is6(), deadline: time.Now().Add(patience)}
	family := unix.AF_INET
	if s.v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	s.fd = fd
	if err := s.prepare(from, device); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) prepare(from netip.AddrPort, device string) error {
	level, recverr, freebind := unix.SOL_IP, unix.IP_RECVERR, unix.IP_FREEBIND
	if s.v6 {
		level, recverr, freebind = unix.SOL_IPV6, unix.IPV6_RECVERR, unix.IPV6_FREEBIND
	}
	if err := unix.SetsockoptInt(s.fd, level, recverr, 1); err != nil {
		return fmt.Errorf("ask for ICMP errors: %w", err)
	}
	if device != "" {
		if err := unix.BindToDevice(s.fd, device); err != nil {
			return fmt.Errorf("bind to device %s: %w", device, err)
		}
	}
	if !from.IsValid() {
		return nil
	}
	if err := unix.SetsockoptInt(s.fd, level, freebind, 1); err != nil {
		return fmt.Errorf("allow any source: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("allow a source again: %w", err)
	}
	sa, err := sockaddr(from)
	if err == nil {
		err = unix.Bind(s.fd, sa)
	}
	if err != nil {
		return fmt.Errorf("bind to %s: %w", from, err)
	}
	return nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// wait polls for events until the deadline and returns those that came, 0 for
// none.
func (s *socket) wait(events int16) (int16, error) {
	for {
		left := time.Until(s.deadline)
		if left < 0 {
			left = 0
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
		n, err := unix.Poll(fds, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for socket: %w", err)
		case n == 0:
			return 0, nil
		}
		return fds[0].Revents, nil
	}
}

// connect connects a stream or datagram socket; nil when it is connected.
func (s *socket) connect(to netip.AddrPort) *Result {
	sa, err := sockaddr(to)
	if err != nil {
		return new(failed("%w", err))
	}
	err = unix.Connect(s.fd, sa)
	if errors.Is(err, unix.EINPROGRESS) {
		events, waitErr := s.wait(unix.POLLOUT)
		switch {
		case waitErr != nil:
			return new(failed("%w", waitErr))
		case events == 0:
			return &Result{Outcome: Silent}
		}
		err = s.pending()
	}
	if err != nil {
		return new(s.refusal(err))
	}
	return nil
}

func (s *socket) pending() error {
	n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	return unix.Errno(n)
}

// refusal turns an error of a socket into a result. A reset and an ICMP port
// unreachable give the same error number; the queue of ICMP errors tells them
// apart.
func (s *socket) refusal(err error) Result {
	if r, ok := s.icmpError(); ok {
		r.Err = err
		return r
	}
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return Result{Outcome: Reset, Err: err}
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EPERM):
		// EPERM is how the sender hears that its own output hook dropped the packet.
		return Result{Outcome: Silent, Err: err}
	}
	return Result{Outcome: Failed, Err: err}
}

// icmpError takes one ICMP error off the socket's error queue.
func (s *socket) icmpError() (Result, bool) {
	data, oob := make([]byte, 512), make([]byte, 512)
	for {
		_, oobn, _, _, err := unix.Recvmsg(s.fd, data, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return Result{}, false
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return Result{}, false
		}
		for _, m := range messages {
			isError := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR ||
				m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
			if !isError || len(m.Data) < int(unsafe.Sizeof(unix.SockExtendedErr{})) {
				continue
			}
			// struct sock_extended_err, then the offender's socket address: see ip(7).
			origin, kind, code := m.Data[4], m.Data[5], m.Data[6]
			if origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
				continue
			}
			return Result{Outcome: Unreachable, ICMPType: kind, ICMPCode: code, ICMPFrom: offender(m.Data[16:])}, true
		}
	}
}

// offender reads a struct sockaddr_in or sockaddr_in6.
func offender(b []byte) netip.Addr {
	if len(b) < 8 {
		return netip.Addr{}
	}
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrFrom4([4]byte(b[4:8]))
	case unix.AF_INET6:
		if len(b) >= 24 {
			return netip.AddrFrom16([16]byte(b[8:24]))
		}
	}
	return netip.Addr{}
}

func (s *socket) local() netip.AddrPort {
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return fromSockaddr(sa)
}

// exchange sends a message and waits for one back.
func (s *socket) exchange(message []byte) Result {
	if err := unix.Send(s.fd, message, unix.MSG_NOSIGNAL); err != nil {
		return s.refusal(err)
	}
	return s.receive(nil)
}

// receive waits for a message that accept takes (nil takes all).
func (s *socket) receive(accept func(message []byte) bool) Result {
	buf := make([]byte, 65536)
	for {
		events, err := s.wait(unix.POLLIN)
		if err != nil {
			return failed("%w", err)
		}
		if events == 0 {
			return Result{Outcome: Silent}
		}
		if events&unix.POLLERR != 0 {
			if r, ok := s.icmpError(); ok {
				return r
			}
			if err := s.pending(); err != nil {
				return s.refusal(err)
			}
		}
		n, err := unix.Read(s.fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return s.refusal(err)
		case accept == nil || accept(buf[:n]):
			return Result{Outcome: Answered, Reply: append([]byte(nil), buf[:n]...)}
		}
	}
}

func sockaddr(a netip.AddrPort) (unix.Sockaddr, error) {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}, nil
	}
	sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if zone := a.Addr().Zone(); zone != "" {
		device, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("find device %s: %w", zone, err)
		}
		sa.ZoneId = uint32(device.Index)
	}
	return sa, nil
}

func fromSockaddr(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
