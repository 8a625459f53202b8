// Package socket lists the TCP and UDP sockets of the network namespace that
// the calling thread is in, over sock_diag(7). host and starter call it. It
// changes nothing.
package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
	// Waiting is how many connections of a socket of TCP that listens wait to be accepted,
	// and Room its backlog; one more than that finds room.
	Waiting, Room uint32
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
func TCP() ([]Socket, error) {
	return list("tcp", func() ([]Socket, error) {
		// The request that is older than sock_diag gives both families: the kernel walks its
		// table of connections once, which is large on a machine with much memory.
		request := nl.NewNetlinkRequest(tcpSockets, unix.NLM_F_DUMP)
		ask := make([]byte, requestSize)
		binary.NativeEndian.PutUint32(ask[requestStates:], allStates)
		request.AddRawData(ask)
		answers, err := request.Execute(unix.NETLINK_SOCK_DIAG, 0)
		var of4, of6 []Socket
		for _, a := range answers {
			switch s, ok := tcpSocket(a); {
			case ok && s.Family == 4:
				of4 = append(of4, s)
			case ok:
				of6 = append(of6, s)
			}
		}
		return append(of4, of6...), err
	})
}

// From include/uapi/linux/inet_diag.h.
const (
	tcpSockets    = 18               // TCPDIAG_GETSOCK
	idSize        = 48               // struct inet_diag_sockid
	requestSize   = 4 + idSize + 8   // struct inet_diag_req
	requestStates = 4 + idSize       // of it
	answerSize    = 4 + idSize + 5*4 // struct inet_diag_msg
	answerUser    = answerSize - 2*4 // of it
	answerQueue   = answerSize - 4*4 // of it: idiag_rqueue, idiag_wqueue
	allStates     = 1<<13 - 1        // TCPF_*
)

// tcpSocket reads a struct inet_diag_msg.
func tcpSocket(m []byte) (Socket, bool) {
	if len(m) < answerSize || m[0] != unix.AF_INET && m[0] != unix.AF_INET6 {
		return Socket{}, false
	}
	family, size := 4, 4
	if m[0] == unix.AF_INET6 {
		family, size = 6, 16
	}
	id := m[4:]
	s := Socket{
		Protocol: "tcp", Family: family, State: State(m[1]),
		Local:  endpoint(id[4:4+size], binary.BigEndian.Uint16(id), family),
		Remote: endpoint(id[20:20+size], binary.BigEndian.Uint16(id[2:]), family),
		Device: int(binary.NativeEndian.Uint32(id[36:])),
		UID:    binary.NativeEndian.Uint32(m[answerUser:]), Inode: binary.NativeEndian.Uint32(m[answerUser+4:]),
	}
	if s.State == Listen {
		s.Waiting, s.Room = binary.NativeEndian.Uint32(m[answerQueue:]), binary.NativeEndian.Uint32(m[answerQueue+4:])
	}
	return s, true
}

// UDP returns every UDP socket of both families that has a local port.
func UDP() ([]Socket, error) {
	var all []Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		found, err := list("udp", func() (out []Socket, err error) {
			found, err := netlink.SocketDiagUDP(family)
			for _, s := range found {
				if s.Family == family {
					out = append(out, convert("udp", s))
				}
			}
			return out, err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func list(protocol string, ask func() ([]Socket, error)) (found []Socket, err error) {
	for range dumpTries {
		if found, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	// A churning table is interrupted each time; what was read is good.
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list %s sockets: %w", protocol, err)
	}
	return found, nil
}

func convert(protocol string, s *netlink.Socket) Socket {
	family := 4
	if s.Family == unix.AF_INET6 {
		family = 6
	}
	out := Socket{
		Protocol: protocol, Family: family, State: State(s.State),
		Local:  endpoint(s.ID.Source, s.ID.SourcePort, family),
		Remote: endpoint(s.ID.Destination, s.ID.DestinationPort, family),
		Device: int(s.ID.Interface), UID: s.UID, Inode: s.INode,
	}
	if out.State == Listen {
		out.Waiting, out.Room = s.RQueue, s.WQueue
	}
	return out
}

func endpoint(ip net.IP, port uint16, family int) netip.AddrPort {
	if family == 4 {
		ip = ip.To4()
	}
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}
