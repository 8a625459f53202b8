package testnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// ServeTCP starts echo servers at the addresses ("[::]:80" serves IPv6 alone),
// as a set-up step. Each answers a message with the peer as it saw it and the
// message; the tries of this package take that apart.
func (s *Namespace) ServeTCP(addresses ...string) {
	s.net.helper()
	for _, address := range addresses {
		listener, err := s.Listen(address)
		if err != nil {
			s.net.fail("serve tcp %s in %s: %w", address, s.label, err)
		}
		s.net.onClose(func() error { return ignoreClosed(listener.Close()) })
		go serveTCP(listener)
	}
}

// Listen makes a TCP listener inside the namespace; who asks closes it.
func (s *Namespace) Listen(address string) (listener net.Listener, err error) {
	err = s.Do(func() (err error) {
		config := net.ListenConfig{Control: freebind}
		listener, err = config.Listen(context.Background(), "tcp"+family(address), address)
		return err
	})
	return listener, err
}

func serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			buf := make([]byte, 65536)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				if _, err := conn.Write(echoOf(peerOf(conn.RemoteAddr()), buf[:n])); err != nil {
					return
				}
			}
		}()
	}
}

// ServeUDP starts UDP echo servers at the addresses, as a set-up step; see
// ServeTCP. They answer from the address that was asked.
func (s *Namespace) ServeUDP(addresses ...string) {
	s.net.helper()
	for _, address := range addresses {
		conn, err := s.listenUDP(address)
		if err != nil {
			s.net.fail("serve udp %s in %s: %w", address, s.label, err)
		}
		s.net.onClose(func() error { return ignoreClosed(conn.Close()) })
		go serveUDP(conn)
	}
}

func (s *Namespace) listenUDP(address string) (conn *net.UDPConn, err error) {
	err = s.Do(func() error {
		config := net.ListenConfig{Control: func(network, address string, raw syscall.RawConn) error {
			return errors.Join(freebind(network, address, raw), packetInfo(network, raw))
		}}
		c, err := config.ListenPacket(context.Background(), "udp"+family(address), address)
		if err != nil {
			return err
		}
		conn, _ = c.(*net.UDPConn)
		return nil
	})
	return conn, err
}

func serveUDP(conn *net.UDPConn) {
	buf, oob := make([]byte, 65536), make([]byte, 256)
	for {
		n, oobn, _, peer, err := conn.ReadMsgUDPAddrPort(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP error about an earlier answer
			continue
		}
		_, _, _ = conn.WriteMsgUDPAddrPort(echoOf(peer, buf[:n]), answerFrom(oob[:oobn]), peer)
	}
}

// answerFrom turns the packet information that came with a datagram into that
// of the answer: the source is the address that was asked.
func answerFrom(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			// struct in_pktinfo: interface, local address, header's destination
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[8:12])})
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16:
			info := &unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])}
			if netip.AddrFrom16(info.Addr).IsMulticast() {
				return nil
			}
			return unix.PktInfo6(info)
		}
	}
	return nil
}

func packetInfo(network string, raw syscall.RawConn) (err error) {
	ctlErr := raw.Control(func(fd uintptr) {
		if network == "udp6" {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1)
		}
	})
	return errors.Join(ctlErr, err)
}

func freebind(network, _ string, raw syscall.RawConn) (err error) {
	ctlErr := raw.Control(func(fd uintptr) {
		if network == "tcp6" || network == "udp6" {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		}
	})
	return errors.Join(ctlErr, err)
}

// family is "4" or "6", by the form of the address. A socket of both families
// would hide which one a packet took.
func family(address string) string {
	if address != "" && address[0] == '[' {
		return "6"
	}
	return "4"
}

func peerOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
