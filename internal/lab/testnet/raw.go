package testnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Send puts IP packets on the port's wire, addressed to the other end of the
// veth pair: the host there takes them in as if they came from its network. No
// hook and no route of the sending namespace sees them.
func (p *Port) Send(packets ...[]byte) error {
	if p.Peer == nil {
		return errors.New("send on " + p.Device + ": not an end of a veth pair")
	}
	return p.SendTo(p.Peer.MAC, packets...)
}

// SendTo is Send to a link-layer address: a host behind a bridge, or all
// (ff:ff:ff:ff:ff:ff).
func (p *Port) SendTo(mac net.HardwareAddr, packets ...[]byte) error {
	p.open.Do(func() { p.socket, p.openErr = p.openSender() })
	if p.openErr != nil {
		return p.openErr
	}
	for _, packet := range packets {
		proto, err := etherType(packet)
		if err != nil {
			return err
		}
		to := &unix.SockaddrLinklayer{Protocol: bigEndian(proto), Ifindex: p.index, Halen: uint8(len(mac))}
		copy(to.Addr[:], mac)
		err = unix.Sendto(p.socket, packet, 0, to)
		for deadline := time.Now().Add(Patience); errors.Is(err, unix.ENOBUFS) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // the wire is full
			err = unix.Sendto(p.socket, packet, 0, to)
		}
		if err != nil {
			return fmt.Errorf("send on %s of %s: %w", p.Device, p.Namespace.label, err)
		}
	}
	return nil
}

// openSender makes the socket that a port sends by. It is kept until the Net is
// closed: closing a packet socket waits for a grace period of the kernel.
func (p *Port) openSender() (fd int, err error) {
	err = p.Namespace.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("make packet socket: %w", err)
	}
	p.Namespace.net.onClose(func() error { return unix.Close(fd) })
	return fd, nil
}

func etherType(packet []byte) (uint16, error) {
	if len(packet) > 0 {
		switch packet[0] >> 4 {
		case 4:
			return unix.ETH_P_IP, nil
		case 6:
			return unix.ETH_P_IPV6, nil
		}
	}
	return 0, errors.New("send: not an IP packet")
}

// bigEndian gives a number whose bytes in memory are those of n in network
// order.
func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(n >> 8), byte(n)})
}

// Seen is a packet that a Capture or Listener saw.
type Seen struct {
	Packet
	Raw      []byte // the whole IP packet; for a Listener of IPv6, the payload
	Outgoing bool   // for a Capture: the device sent it
}

// Capture keeps the IP packets that a device carries, both ways: incoming ones
// as they arrive, before every hook of IP; outgoing ones after the last.
type Capture struct{ recorder }

// Capture starts a capture on the port as a set-up step. It ends with the Net.
func (p *Port) Capture() *Capture {
	p.Namespace.net.helper()
	c := &Capture{}
	err := p.Namespace.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		c.fd = fd
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: p.index})
	})
	if err == nil {
		err = c.start(func(b []byte, from unix.Sockaddr) (Seen, bool) {
			packet, err := Parse(b)
			if err != nil {
				return Seen{}, false
			}
			ll, ok := from.(*unix.SockaddrLinklayer)
			return Seen{Packet: packet, Raw: b, Outgoing: ok && ll.Pkttype == unix.PACKET_OUTGOING}, true
		})
	}
	if err != nil {
		p.Namespace.net.fail("capture on %s of %s: %w", p.Device, p.Namespace.label, err)
	}
	p.Namespace.net.onClose(c.stop)
	return c
}

// Listener keeps what the host itself takes in of one protocol: the packets
// that its input hook has let through, whether or not a socket waits for them.
type Listener struct{ recorder }

// Delivered starts a Listener as a set-up step, for a protocol number and the
// family of IPv4 (6 false) or IPv6. It ends with the Net.
//
// A raw socket gets packets after reassembly and makes the kernel believe that
// the protocol is served, so a protocol without other user is not answered by
// an ICMP error. IPv6 gives no addresses of the destination.
func (s *Namespace) Delivered(proto uint8, v6 bool) *Listener {
	s.net.helper()
	l := &Listener{}
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	err := s.Do(func() (err error) {
		l.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto))
		return err
	})
	if err == nil {
		err = l.start(func(b []byte, from unix.Sockaddr) (Seen, bool) {
			if !v6 {
				packet, err := Parse(b)
				return Seen{Packet: packet, Raw: b}, err == nil
			}
			packet := Packet{Source: fromSockaddr(from).Addr(), Protocol: proto}
			packet.parseTransport(b)
			return Seen{Packet: packet, Raw: b}, true
		})
	}
	if err != nil {
		s.net.fail("listen for protocol %d in %s: %w", proto, s.label, err)
	}
	s.net.onClose(l.stop)
	return l
}

// recorder reads a socket until it is stopped.
type recorder struct {
	take func([]byte, unix.Sockaddr) (Seen, bool)
	end  chan struct{}
	done chan struct{}

	mu     sync.Mutex
	fd     int // -1 when stopped
	buffer []byte
	seen   []Seen
	more   chan struct{} // closed and replaced when seen grows
}

func (r *recorder) start(take func([]byte, unix.Sockaddr) (Seen, bool)) error {
	r.take, r.buffer = take, make([]byte, 65536)
	r.more, r.end, r.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	// Best effort: without the right to go over the limit, the limit it is.
	_ = unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	go func() {
		defer close(r.done)
		for {
			select {
			case <-r.end:
				return
			default:
			}
			if n, err := unix.Poll(fds, 20); err != nil && !errors.Is(err, unix.EINTR) || n > 0 && !r.read() {
				return
			}
		}
	}()
	return nil
}

// read takes in all that the socket has; false when it is of no use any more.
func (r *recorder) read() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.seen)
	defer func() {
		if len(r.seen) > before {
			close(r.more)
			r.more = make(chan struct{})
		}
	}()
	for {
		n, from, err := unix.Recvfrom(r.fd, r.buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
			continue
		case err != nil:
			return errors.Is(err, unix.EAGAIN)
		}
		if s, ok := r.take(append([]byte(nil), r.buffer[:n]...), from); ok {
			r.seen = append(r.seen, s)
		}
	}
}

func (r *recorder) stop() error {
	close(r.end)
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	fd := r.fd
	r.fd = -1
	return unix.Close(fd)
}

// Seen returns all that has come so far.
func (r *recorder) Seen() []Seen {
	r.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Seen(nil), r.seen...)
}

// Forget empties the record.
func (r *recorder) Forget() {
	r.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// Wait waits until a packet that match accepts has been seen, and returns it.
// Patience 0 is Patience.
func (r *recorder) Wait(patience time.Duration, match func(Seen) bool) (Seen, bool) {
	if patience == 0 {
		patience = Patience
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for last := false; ; {
		r.mu.Lock()
		seen, more := r.seen, r.more
		r.mu.Unlock()
		for _, s := range seen {
			if match(s) {
				return s, true
			}
		}
		if last {
			return Seen{}, false
		}
		select {
		case <-more:
		case <-late.C:
			r.read() // the other goroutine may be late too
			last = true
		}
	}
}

// From matches packets by source address.
func From(source netip.Addr) func(Seen) bool {
	return func(s Seen) bool { return s.Source == source }
}
