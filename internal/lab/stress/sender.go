package stress

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// sender sends flows in turn until it is stopped: what comes in from the client's end
// of the wire, what goes out from sockets of the host.
type sender struct {
	flows [2][]flow
	stops [2]func() ([]uint64, error)
}

// burst is how many packets are sent at every beat, each way: the processors are left
// to the applies.
const (
	burst = 32
	beat  = 2 * time.Millisecond
)

func (l *lab) startSender(flows []flow) (*sender, error) {
	sockets, err := l.outputSockets()
	if err != nil {
		return nil, err
	}
	s := &sender{}
	var send [2][]func() error
	for _, f := range flows {
		way, packet := 0, f.packet()
		one := func() error { return l.outside.Send(packet) }
		if f.kind.hook == output {
			way, one = 1, sockets.sender(f)
		}
		s.flows[way], send[way] = append(s.flows[way], f), append(send[way], one)
	}
	for way := range send {
		s.stops[way] = testnet.Flood(burst, beat, send[way]...)
	}
	return s, nil
}

// stop stops sending and says what was sent.
func (s *sender) stop() (map[kind]uint64, error) {
	out := map[kind]uint64{}
	var errs []error
	for way, stop := range s.stops {
		sent, err := stop()
		for i, n := range sent {
			out[s.flows[way][i].kind] += n
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// outputSockets are the host's sockets that flows leave by, by their source port
// and family.
type outputSockets map[kind]int

func (l *lab) outputSockets() (outputSockets, error) {
	out := outputSockets{}
	for _, k := range kinds() {
		if k.hook != output {
			continue
		}
		domain, own := unix.AF_INET, hostV4
		if k.family == 6 {
			domain, own = unix.AF_INET6, hostV6
		}
		err := l.host.Do(func() error {
			fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			l.closers = append(l.closers, closeSocket(fd))
			out[k] = fd
			return errors.Join(
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.Bind(fd, sockaddr(netip.AddrPortFrom(netip.MustParseAddr(own), k.port()))),
			)
		})
		if err != nil {
			return nil, fmt.Errorf("make a socket for what the host sends: %w", err)
		}
	}
	return out, nil
}

// closeSocket closes a socket by its number.
type closeSocket int

func (fd closeSocket) Close() error { return unix.Close(int(fd)) }

// sender sends a datagram. That the host's own rules dropped or refused it is
// no failure.
func (o outputSockets) sender(f flow) func() error {
	fd, to := o[f.kind], sockaddr(f.to)
	return func() error {
		err := unix.Sendto(fd, []byte("flow"), 0, to)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) {
			return nil
		}
		return err
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
