package testnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"sluice/internal/base/packet"

	"golang.org/x/sys/unix"
)

// TCPTry is one TCP connection to try.
type TCPTry struct {
	From     netip.AddrPort // zero: the kernel chooses; port 0: the kernel chooses the port
	To       netip.AddrPort
	Patience time.Duration // 0: Patience
	// Message is sent once connected, and an answer awaited; empty: the
	// connection alone counts.
	Message string
}

// TryTCP connects from inside the namespace.
func (s *Namespace) TryTCP(try TCPTry) Result {
	r, conn := s.openTCP(try)
	if conn != nil {
		conn.Close()
	}
	return r
}

// Conn is a TCP connection that is kept open.
type Conn struct{ s *socket }

// Exchange sends a message and waits for an answer. Patience 0 is Patience.
func (c *Conn) Exchange(message string, patience time.Duration) Result {
	if patience == 0 {
		patience = Patience
	}
	c.s.deadline = time.Now().Add(patience)
	r := c.s.exchange([]byte(message))
	splitPeer(&r)
	return r
}

// Close ends the connection by a reset.
func (c *Conn) Close() {
	_ = unix.SetsockoptLinger(c.s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	c.s.close()
}

// Shutdown ends what this side sends and keeps the connection for what the other one does.
func (c *Conn) Shutdown() { _ = unix.Shutdown(c.s.fd, unix.SHUT_WR) }

// OpenTCP connects from inside the namespace and keeps the connection; it is
// nil when there is none.
func (s *Namespace) OpenTCP(try TCPTry) (Result, *Conn) { return s.openTCP(try) }

func (s *Namespace) openTCP(try TCPTry) (r Result, conn *Conn) {
	err := s.Do(func() error {
		sock, err := openSocket(try.To.Addr(), unix.SOCK_STREAM, 0, try.From, "", try.Patience)
		if err != nil {
			return err
		}
		if no := sock.connect(try.To); no != nil {
			r = *no
			r.Local = sock.local()
			sock.close()
			return nil
		}
		conn = &Conn{sock}
		r = Result{Outcome: Answered}
		if try.Message != "" {
			r = sock.exchange([]byte(try.Message))
			splitPeer(&r)
		}
		r.Local = sock.local()
		return nil
	})
	if err != nil {
		r = failed("%w", err)
	}
	return r, conn
}

// UDPTry is one UDP exchange to try.
type UDPTry struct {
	From     netip.AddrPort
	To       netip.AddrPort
	Device   string        // bind to this device
	Message  string        // empty: some text
	Patience time.Duration // 0: Patience
}

// TryUDP sends a datagram from inside the namespace and waits for an answer.
func (s *Namespace) TryUDP(try UDPTry) (r Result) {
	if try.Message == "" {
		try.Message = "anybody there?"
	}
	err := s.Do(func() error {
		sock, err := openSocket(try.To.Addr(), unix.SOCK_DGRAM, 0, try.From, try.Device, try.Patience)
		if err != nil {
			return err
		}
		defer sock.close()
		if no := sock.connect(try.To); no != nil {
			r = *no
			return nil
		}
		r = sock.exchange([]byte(try.Message))
		r.Local = sock.local()
		splitPeer(&r)
		return nil
	})
	if err != nil {
		return failed("%w", err)
	}
	return r
}

// EchoTry is one ICMP or ICMPv6 echo request to try.
type EchoTry struct {
	From     netip.Addr
	To       netip.Addr
	ID       uint16        // 0: one that no other try of this process has
	Sequence uint16        //
	Patience time.Duration // 0: Patience
}

var echoID atomic.Uint32

// TryEcho sends an echo request from inside the namespace and waits for the
// reply.
func (s *Namespace) TryEcho(try EchoTry) (r Result) {
	if try.ID == 0 {
		try.ID = uint16(uint32(os.Getpid())<<4 + echoID.Add(1))
	}
	proto, request, reply := unix.IPPROTO_ICMP, byte(8), byte(0)
	if try.To.Is6() {
		proto, request, reply = unix.IPPROTO_ICMPV6, 128, 129
	}
	message := make([]byte, 24)
	message[0] = request
	binary.BigEndian.PutUint16(message[4:], try.ID)
	binary.BigEndian.PutUint16(message[6:], try.Sequence)
	if !try.To.Is6() { // the kernel fills in the checksum of ICMPv6 alone
		binary.BigEndian.PutUint16(message[2:], packet.Checksum(message))
	}
	err := s.Do(func() error {
		var from netip.AddrPort
		if try.From.IsValid() {
			from = netip.AddrPortFrom(try.From, 0)
		}
		sock, err := openSocket(try.To, unix.SOCK_RAW, proto, from, "", try.Patience)
		if err != nil {
			return err
		}
		defer sock.close()
		if no := sock.connect(netip.AddrPortFrom(try.To, 0)); no != nil {
			r = *no
			return nil
		}
		if err := unix.Send(sock.fd, message, 0); err != nil {
			r = sock.refusal(err)
			return nil
		}
		r = sock.receive(func(b []byte) bool {
			if !try.To.Is6() { // a raw IPv4 socket gives the IP header too
				if len(b) < 20 || len(b) < int(b[0]&15)*4 {
					return false
				}
				b = b[int(b[0]&15)*4:]
			}
			return len(b) >= 8 && b[0] == reply && bytes.Equal(b[4:8], message[4:8])
		})
		r.Local = sock.local()
		return nil
	})
	if err != nil {
		return failed("%w", err)
	}
	return r
}

// The servers of this package answer "PEER\tMESSAGE".
func echoOf(peer netip.AddrPort, message []byte) []byte {
	peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	return fmt.Appendf(nil, "%s\t%s", peer, message)
}

func splitPeer(r *Result) {
	peer, message, ok := strings.Cut(string(r.Reply), "\t")
	if !ok {
		return
	}
	if p, err := netip.ParseAddrPort(peer); err == nil {
		r.Peer, r.Reply = p, []byte(message)
	}
}
