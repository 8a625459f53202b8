package stress

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sender sends flows in turn until it is stopped.
type sender struct {
	end    chan struct{}
	done   sync.WaitGroup
	mu     sync.Mutex
	sent   map[kind]uint64
	failed error
}

// burst is how many packets are sent between two pauses: with a burst each
// millisecond or two the processors are left to the applies.
const (
	burst = 32
	pause = 2 * time.Millisecond
)

// startSender begins to send: what comes in from the client's end of the wire,
// what goes out from sockets of the host.
func (l *lab) startSender(flows []flow) (*sender, error) {
	s := &sender{end: make(chan struct{}), sent: map[kind]uint64{}}
	var in, out []shot
	sockets, err := l.outputSockets()
	if err != nil {
		return nil, err
	}
	for _, f := range flows {
		if f.kind.hook == output {
			out = append(out, shot{f.kind, sockets.sender(f)})
			continue
		}
		packet := f.packet()
		in = append(in, shot{f.kind, func() error { return l.outside.Send(packet) }})
	}
	s.done.Go(func() { s.run(in) })
	s.done.Go(func() { s.run(out) })
	return s, nil
}

// shot sends one flow's packet.
type shot struct {
	kind kind
	send func() error
}

func (s *sender) run(shots []shot) {
	sent := map[kind]uint64{}
	var failed error
	for i := 0; len(shots) > 0 && failed == nil; {
		for range burst {
			shot := shots[i%len(shots)]
			if failed = shot.send(); failed != nil {
				break
			}
			sent[shot.kind]++
			i++
		}
		select {
		case <-s.end:
			shots = nil
		case <-time.After(pause):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range sent {
		s.sent[k] += n
	}
	s.failed = errors.Join(s.failed, failed)
}

// stop stops sending and says what was sent.
func (s *sender) stop() (map[kind]uint64, error) {
	close(s.end)
	s.done.Wait()
	return s.sent, s.failed
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
