// Package wire sends whole packets and sees what leaves, through packet and raw
// sockets in the network namespace of the calling thread. The live trace (nftables/live) calls it, in
// namespaces that it made; hostwatch reads the counters of IP by it.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"
)

// Pin keeps the calling thread on the processor that it runs on, so that packets which it
// sends one after the other are worked off in that order. It ends with the thread.
func Pin() error {
	runtime.LockOSThread()
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("find the processors of the thread: %w", err)
	}
	for i := range len(may) * 64 {
		if may.IsSet(i) {
			var one unix.CPUSet
			one.Set(i)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return fmt.Errorf("keep the thread on one processor: %w", err)
			}
			return nil
		}
	}
	return nil
}

// Ethernet protocols.
const (
	ipv4 = unix.ETH_P_IP
	ipv6 = unix.ETH_P_IPV6
)

// Port is a device that frames are sent by.
type Port struct {
	fd    int
	index int
}

// OpenPort opens a device by its name.
func OpenPort(device string) (*Port, error) {
	found, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("open device %s: %w", device, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	return &Port{fd, found.Index}, nil
}

// Close closes it.
func (p *Port) Close() error { return unix.Close(p.fd) }

// Send puts an IP packet into a frame from one hardware address to another and sends it.
func (p *Port) Send(from, to net.HardwareAddr, packet []byte) error {
	protocol := uint16(ipv4)
	if len(packet) > 0 && packet[0]>>4 == 6 {
		protocol = ipv6
	}
	frame := make([]byte, 0, 14+len(packet))
	frame = append(frame, pad(to)...)
	frame = append(frame, pad(from)...)
	frame = binary.BigEndian.AppendUint16(frame, protocol)
	frame = append(frame, packet...)
	err := unix.Sendto(p.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.index, Protocol: hton(protocol)})
	if err != nil {
		return fmt.Errorf("send a packet: %w", err)
	}
	return nil
}

func pad(mac net.HardwareAddr) []byte {
	var six [6]byte
	copy(six[:], mac)
	return six[:]
}

func hton(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// ErrNoRoute says that the kernel knows no way to the destination, or that a route
// refuses it.
var ErrNoRoute = errors.New("no route to the destination")

// SendLocal sends a whole IP packet as a socket of this host does, of the given user.
// A device that is not "" is the one that it has to leave by. That a rule refused the
// packet is no error.
func SendLocal(packet []byte, to netip.Addr, device string, user int) error {
	family, option := unix.AF_INET, unix.IP_HDRINCL
	level := unix.IPPROTO_IP
	var address unix.Sockaddr
	if !to.Unmap().Is4() {
		family, level, option = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_HDRINCL
		six := &unix.SockaddrInet6{Addr: to.As16()}
		if found, err := net.InterfaceByName(device); err == nil {
			six.ZoneId = uint32(found.Index) //nolint:gosec // positive
		}
		address = six
	} else {
		address = &unix.SockaddrInet4{Addr: to.Unmap().As4()}
	}
	fd, err := socketOf(user, family)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("set up a raw socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	if device != "" {
		if err := unix.BindToDevice(fd, device); err != nil {
			return fmt.Errorf("send by device %s: %w", device, err)
		}
	}
	err = unix.Sendto(fd, packet, 0, address)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), // none, or one of type unreachable
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.EACCES): // blackhole, prohibit (fib_props in net/ipv4/fib_semantics.c)
		return ErrNoRoute
	case err != nil:
		return fmt.Errorf("send a packet: %w", err)
	}
	return nil
}

// socketOf opens a raw socket that belongs to a user, whatever the thread's user: its
// owner is the file system user of the moment (nft_meta_get_eval_skugid in
// net/netfilter/nft_meta.c).
func socketOf(user, family int) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if before := unix.Geteuid(); user != before {
		// The calls work on the thread alone, and give no error: what is the case is asked.
		_, _ = unix.SetfsuidRetUid(user)
		defer func() { _, _ = unix.SetfsuidRetUid(before) }()
		if now, _ := unix.SetfsuidRetUid(-1); now != user {
			return 0, fmt.Errorf("become user %d: %w", user, unix.EPERM)
		}
	}
	return unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
}

// Member is a socket that has joined a group.
type Member struct{ fd int }

// Join joins a multicast group on a device, so that the kernel takes its packets.
func Join(group netip.Addr, device int) (*Member, error) {
	family := unix.AF_INET
	if !group.Unmap().Is4() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	if family == unix.AF_INET {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.Unmap().As4(), Ifindex: int32(device)}) //nolint:gosec // an index
	} else {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(device)}) //nolint:gosec // an index
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("join group %s: %w", group, err), unix.Close(fd))
	}
	return &Member{fd}, nil
}

// Close leaves the group.
func (m *Member) Close() error { return unix.Close(m.fd) }

// Tap sees the IP packets that leave by any device.
type Tap struct{ fd int }

// OpenTap begins to look.
func OpenTap() (*Tap, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(hton(unix.ETH_P_ALL)))
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	return &Tap{fd}, nil
}

// Close closes it.
func (t *Tap) Close() error { return unix.Close(t.fd) }

// Left is a packet that left.
type Left struct {
	Index  int // of the device
	Packet []byte
}

// Take gives what has left since it was asked last.
func (t *Tap) Take() ([]Left, error) {
	var all []Left
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(t.fd, buffer, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return all, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("look at what leaves: %w", err)
		}
		link, is := from.(*unix.SockaddrLinklayer)
		if !is || link.Pkttype != unix.PACKET_OUTGOING {
			continue
		}
		if p := link.Protocol; p != hton(ipv4) && p != hton(ipv6) {
			continue
		}
		all = append(all, Left{link.Ifindex, append([]byte(nil), buffer[:n]...)})
	}
}
