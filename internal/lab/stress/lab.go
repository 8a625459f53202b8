package stress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"

	"sluice/internal/lab/testnet"
)

// The lab: a client outside, the host that is changed, and a host inside that
// is reached through it.
const (
	wan, lan = "wan0", "lan0"

	clientV4, clientV6 = "192.0.2.2", "2001:db8:1::2"
	hostV4, hostV6     = "192.0.2.1", "2001:db8:1::1"
	gateV4, gateV6     = "10.77.0.1", "2001:db8:77::1" // the host, seen from inside
	insideV4, insideV6 = "10.77.0.2", "2001:db8:77::2"
)

type lab struct {
	net                  *testnet.Net
	host, client, inside *testnet.Namespace
	outside              *testnet.Port           // the client's end of the wire to the host
	leaving              map[kind]net.PacketConn // see output
	closers              []io.Closer
}

// newLab makes the lab in a net, with the watch, and nothing of Sluice.
func newLab(n *testnet.Net) (*lab, error) {
	l := &lab{net: n}
	return l, n.Try(l.setUp)
}

func (l *lab) setUp() {
	n := l.net
	l.host, l.client, l.inside = n.Namespace("host"), n.Unnamed("client"), n.Unnamed("inside")
	_, l.outside = n.Wire(
		testnet.End{In: l.host, Device: wan, Addresses: []string{hostV4 + "/24", hostV6 + "/64"}},
		testnet.End{In: l.client, Device: "eth0", Addresses: []string{clientV4 + "/24", clientV6 + "/64"}},
	)
	n.Wire(
		testnet.End{In: l.host, Device: lan, Addresses: []string{gateV4 + "/24", gateV6 + "/64"}},
		testnet.End{In: l.inside, Device: "eth0", Addresses: []string{insideV4 + "/24", insideV6 + "/64"}},
	)
	l.host.Forward()
	l.host.Route("default4", clientV4)
	l.host.Route("default6", clientV6)
	l.inside.Route("default4", gateV4)
	l.inside.Route("default6", gateV6)
	l.client.Route("10.77.0.0/24", hostV4)
	l.client.Route("2001:db8:77::/64", hostV6)
	// Sockets that nobody reads keep the kernel from answering: an answer would
	// make what repeats a known flow instead of a new one.
	l.sink(l.host, flowPort)
	l.sink(l.inside, flowPort)
	l.host.Nft(watchTable())
}

// sink takes datagrams in and forgets them, as a set-up step.
func (l *lab) sink(s *testnet.Namespace, port uint16) {
	for _, address := range []string{"0.0.0.0", "::"} {
		a := netip.AddrPortFrom(netip.MustParseAddr(address), port)
		if err := l.listenUDP(s, a); err != nil {
			panic(fmt.Sprintf("no socket for %s in a namespace of its own: %v", a, err))
		}
	}
}

// listenUDP binds a socket that lives as long as the net: nobody reads it, and
// what does not fit is dropped behind every hook.
func (l *lab) listenUDP(s *testnet.Namespace, at netip.AddrPort) error {
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}
	return s.Do(func() error {
		conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		l.closers = append(l.closers, conn)
		return conn.SetReadBuffer(1 << 12)
	})
}

// processAttributes of what the stress starts: it dies with this process.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// close closes the lab's sockets; the namespaces go with their net.
func (l *lab) close() error {
	var errs []error
	for _, c := range l.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
