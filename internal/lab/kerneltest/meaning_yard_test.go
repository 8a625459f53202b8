package kerneltest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/host"
)

// yard is where policies are held against the kernel packet by packet:
//
//	world ── wan0 host lan0 ── street
//	                   lan1 ── court
//
// Behind the host's devices are bare wires: nobody answers there, so what is seen
// on one is what the host's rules let through or answered themselves. What they
// let in is told by a witness behind the input hook's last chain, and goes no
// further, so the host itself says nothing either.
//
// All is sent from one thread on one processor. A packet that enters there passes
// all hooks in the order in which it was sent, and so do the frames behind it that
// are no IP and that no rule looks at: what has not been seen when such a mark has
// come through will not come any more. So nothing waits for time to pass.
type yard struct {
	t         *testing.T
	host, far *testnet.Namespace
	sides     []*yardWire
	witness   *witness
	senders   map[sender]int // raw sockets of the host
	facts     host.Facts
	cpu       int
	buffer    []byte
}

// yardWire is one device of the host with the wire behind it.
type yardWire struct {
	name    string
	index   uint32 // of the near device
	in, out *end   // the far end, which sends to the host, and the near one
	capture int    // what the host sends, on the far end
	marks   int    // marks that arrive, on the near end
}

// end is one end of a wire as a sender of frames.
type end struct {
	fd, index int
	peer      net.HardwareAddr
}

func (e *end) send(kind uint16, payload []byte) error {
	to := &unix.SockaddrLinklayer{Protocol: wireOrder(kind), Ifindex: e.index, Halen: 6}
	copy(to.Addr[:], e.peer)
	return unix.Sendto(e.fd, payload, 0, to)
}

// sender is whose raw socket of the host is meant.
type sender struct {
	user int64
	v6   bool
}

// The devices of the host, as indexes of yard.sides; fromHost is none.
const (
	wan0 = iota
	lan0
	lan1
	fromHost = -1
)

const markType = 0x88b5 // IEEE 802: local experiments

// yardDevices are the host's devices with what it is reached by behind them.
var yardDevices = []struct {
	name      string
	addresses []string
	routes    []string // networks behind the device that are not its own
}{
	{"wan0", []string{"198.51.100.1/24", "198.51.100.9/24", "2001:db8:100::9/64", "2001:db8:100::1/64"}, nil},
	{"lan0", []string{"10.20.0.1/24", "2001:db8:20::1/64"}, []string{"10.99.0.0/24", "2001:db8:aaaa::/64"}},
	{"lan1", []string{"10.30.0.1/24", "2001:db8:30::1/64"}, nil},
}

func newYard(t *testing.T) *yard {
	t.Helper()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.NftNAT, packetLog)
	n := testnet.New(t)
	y := &yard{t: t, host: n.Namespace("host"), far: n.Unnamed("far"), senders: map[sender]int{}, buffer: make([]byte, 65536)}
	y.host.Forward()
	for name, value := range map[string]string{
		// All that is rejected is answered; the kernel would answer a few a second.
		"net.ipv4.icmp_ratemask": "0",
		"net.ipv6.icmp.ratemask": "2", // a bitmap: packet too big alone
		// A packet that leaves where it came in is none of a redirect's business.
		"net.ipv4.conf.all.send_redirects":     "0",
		"net.ipv4.conf.default.send_redirects": "0",
	} {
		y.host.Sysctl(name, value)
	}
	for _, d := range yardDevices {
		w := &yardWire{name: d.name}
		n.Join(testnet.End{In: y.host, Device: d.name, Addresses: d.addresses}, testnet.End{In: y.far, Device: d.name})
		y.far.Sysctl("net.ipv6.conf."+d.name+".disable_ipv6", "1") // so that nobody there answers
		y.try(y.prepare(w))
		for _, route := range d.routes {
			y.host.Route(route, "dev "+d.name)
		}
		y.sides = append(y.sides, w)
	}
	y.host.Route("default4", "198.51.100.254")
	y.host.Route("default6", "2001:db8:100::fe")
	y.try(y.host.Do(func() (err error) {
		y.facts, err = host.Describe(context.Background(), nil)
		// So that bypasses of the host's own addresses go by the facts alone: whatever
		// is sent to one is the host's, which they are for as long as the test runs.
		y.facts.Forwarding4, y.facts.Forwarding6 = false, false
		return err
	}))
	y.witness = newWitness(t, y.host)
	return y
}

func (y *yard) try(err error) {
	y.t.Helper()
	if err != nil {
		y.t.Fatal(err)
	}
}

// prepare makes the near device one that asks for no link-layer addresses, and
// opens the sockets on both ends.
func (y *yard) prepare(w *yardWire) error {
	links := y.host.Links()
	link, err := links.LinkByName(w.name)
	if err != nil {
		return err
	}
	if err := links.LinkSetARPOff(link); err != nil {
		return err
	}
	w.index = uint32(link.Attrs().Index)
	far, err := y.far.Links().LinkByName(w.name)
	if err != nil {
		return err
	}
	open := func(in *testnet.Namespace, proto uint16, index int) (fd int, err error) {
		err = in.Do(func() (err error) {
			if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil || proto == 0 {
				return err
			}
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
				return err
			}
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
				return err
			}
			// What the socket's own end sends is not wanted.
			if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
				return err
			}
			return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: wireOrder(proto), Ifindex: index})
		})
		y.t.Cleanup(func() { _ = unix.Close(fd) })
		return fd, err
	}
	near, farIndex := int(w.index), far.Attrs().Index
	w.in = &end{index: farIndex, peer: link.Attrs().HardwareAddr}
	w.out = &end{index: near, peer: far.Attrs().HardwareAddr}
	for _, socket := range []struct {
		fd    *int
		in    *testnet.Namespace
		proto uint16
		index int
	}{
		{&w.in.fd, y.far, 0, farIndex},
		{&w.out.fd, y.host, 0, near},
		{&w.capture, y.far, unix.ETH_P_ALL, farIndex},
		{&w.marks, y.host, markType, near},
	} {
		if *socket.fd, err = open(socket.in, socket.proto, socket.index); err != nil {
			return err
		}
	}
	return nil
}

func wireOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(n >> 8), byte(n)})
}

// pinned runs f on one processor.
func (y *yard) pinned(f func()) {
	y.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	y.try(unix.SchedGetaffinity(0, &before))
	for y.cpu = 0; !before.IsSet(y.cpu); y.cpu++ { // the first that the process may use
	}
	one.Set(y.cpu)
	y.try(unix.SchedSetaffinity(0, &one))
	defer func() { y.try(unix.SchedSetaffinity(0, &before)) }()
	f()
}

// window is how many shots are on the way at the most: the kernel's queue between
// two ends of a wire holds 1000 (net.core.netdev_max_backlog), and a shot may be
// two fragments, and be answered.
const window = 100

// send sends shots in their order and gives all that was seen of each.
func (y *yard) send(shots []*shot) {
	y.t.Helper()
	y.pinned(func() {
		r := newRun(shots)
		for from := 0; from < len(shots); from += window {
			for _, s := range shots[from:min(from+window, len(shots))] {
				y.try(y.fire(s))
			}
			y.collect(r)
		}
	})
}

func (y *yard) fire(s *shot) error {
	for _, raw := range s.raw {
		if s.side != fromHost {
			kind := uint16(unix.ETH_P_IP)
			if raw[0]>>4 == 6 {
				kind = unix.ETH_P_IPV6
			}
			if err := y.sides[s.side].in.send(kind, raw); err != nil {
				return err
			}
			continue
		}
		fd, err := y.sender(sender{s.packet.Owner, s.packet.Source.Is6()})
		if err != nil {
			return err
		}
		var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(s.packet.Destination.AsSlice())}
		if s.packet.Source.Is6() {
			to = &unix.SockaddrInet6{Addr: s.packet.Destination.As16()}
		}
		// EPERM is how the sender hears that the output hook did not let it pass.
		if err := unix.Sendto(fd, raw, 0, to); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("send %s: %w", s.way, err)
		}
	}
	return nil
}

// sender is a raw socket of the user on the host.
func (y *yard) sender(who sender) (int, error) {
	if fd, ok := y.senders[who]; ok {
		return fd, nil
	}
	var fd int
	err := y.host.Do(func() (err error) {
		family := unix.AF_INET
		if who.v6 {
			family = unix.AF_INET6
		}
		// The kernel looks at the user for files of who opened the socket.
		if err := unix.Setfsuid(int(who.user)); err != nil {
			return err
		}
		defer func() { _ = unix.Setfsuid(0) }()
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("open raw socket: %w", err)
	}
	y.t.Cleanup(func() { _ = unix.Close(fd) })
	y.senders[who] = fd
	return fd, nil
}

// collect sends the marks and takes in what came before them.
func (y *yard) collect(r *run) {
	y.t.Helper()
	pass := func(from *end, fd int, take func([]byte)) {
		y.t.Helper()
		y.try(from.send(markType, []byte("mark")))
		for {
			n, peer, err := unix.Recvfrom(fd, y.buffer, 0)
			if err != nil {
				y.t.Fatalf("wait for a mark: %v", err)
			}
			if ll, ok := peer.(*unix.SockaddrLinklayer); ok && ll.Protocol == wireOrder(markType) {
				return
			}
			take(y.buffer[:n])
		}
	}
	for _, w := range y.sides {
		pass(w.in, w.marks, func([]byte) {})
	}
	for i, w := range y.sides {
		pass(w.out, w.capture, func(b []byte) { r.note(b, i) })
	}
	y.try(y.witness.read(func(b []byte, device uint32) {
		at := fromHost
		for i, w := range y.sides {
			if w.index == device {
				at = i
			}
		}
		r.noteTaken(b, at)
	}))
}

// local says whether an address is one of the host's own, and route, otherwise, by
// which device the host sends to it.
func (y *yard) local(a netip.Addr) bool {
	for _, d := range yardDevices {
		for _, text := range d.addresses {
			if netip.MustParsePrefix(text).Addr() == a {
				return true
			}
		}
	}
	return a.IsLoopback()
}

func (y *yard) route(a netip.Addr) int {
	for i, d := range yardDevices {
		for _, text := range append(append([]string(nil), d.addresses...), d.routes...) {
			if netip.MustParsePrefix(text).Masked().Contains(a) {
				return i
			}
		}
	}
	return wan0
}

// deviceTo is the name of the device by which the host sends to an address.
func (y *yard) deviceTo(a netip.Addr) string {
	if y.local(a) {
		return "lo"
	}
	return yardDevices[y.route(a)].name
}
