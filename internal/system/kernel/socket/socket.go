// Package socket lists the TCP and UDP sockets of the network namespace that
// the calling thread is in, over sock_diag(7). host and starter call it. It
// changes nothing.
package socket

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Socket is one socket. Addresses in IPv4-mapped notation stand as IPv4.
type Socket struct {
	Protocol string // "tcp" or "udp"
	Family   int    // 4 or 6: of the socket; a socket of 6 at :: takes IPv4 too unless it is told not to
	State    State
	Local    netip.AddrPort
	Remote   netip.AddrPort // zero port: not connected
	Device   int            // index that it is bound to, 0 is none
	UID      uint32
	Inode    uint32 // 0: no process holds it any more
}

// State is a socket's state as the kernel numbers it (include/net/tcp_states.h);
// UDP uses Established for connected and Close for all others.
type State uint8

// The states that callers ask for.
const (
	Established State = 1
	Close       State = 7
	Listen      State = 10
)

// A dump that the kernel changed under is asked again, so often at most.
const dumpTries = 5

// TCP returns every TCP socket of both families.
func TCP() ([]Socket, error) { return list("tcp", netlink.SocketDiagTCP) }

// UDP returns every UDP socket of both families that has a local port.
func UDP() ([]Socket, error) { return list("udp", netlink.SocketDiagUDP) }

func list(protocol string, ask func(uint8) ([]*netlink.Socket, error)) ([]Socket, error) {
	var all []Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		var found []*netlink.Socket
		var err error
		for range dumpTries {
			found, err = ask(family)
			if !errors.Is(err, netlink.ErrDumpInterrupted) {
				break
			}
		}
		// A churning table is interrupted each time; what was read is good.
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list %s sockets: %w", protocol, err)
		}
		for _, s := range found {
			if s.Family == family {
				all = append(all, convert(protocol, s))
			}
		}
	}
	return all, nil
}

func convert(protocol string, s *netlink.Socket) Socket {
	family := 4
	if s.Family == unix.AF_INET6 {
		family = 6
	}
	return Socket{
		Protocol: protocol, Family: family, State: State(s.State),
		Local:  endpoint(s.ID.Source, s.ID.SourcePort, family),
		Remote: endpoint(s.ID.Destination, s.ID.DestinationPort, family),
		Device: int(s.ID.Interface), UID: s.UID, Inode: s.INode,
	}
}

func endpoint(ip net.IP, port uint16, family int) netip.AddrPort {
	if family == 4 {
		ip = ip.To4()
	}
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}
