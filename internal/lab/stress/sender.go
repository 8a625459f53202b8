package stress

import (
	"errors"
	"fmt"
	"net"
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
	sockets, err := l.output()
	if err != nil {
		return nil, err
	}
	s := &sender{}
	var send [2][]func() error
	for _, f := range flows {
		way, packet := 0, f.packet()
		one := func() error { return l.outside.Send(packet) }
		if f.kind.hook == output {
			way, one = 1, leave(sockets[f.kind], f)
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

// output is the host's sockets that flows leave by, by their kind. They live as long as
// the lab.
func (l *lab) output() (map[kind]net.PacketConn, error) {
	if l.leaving != nil {
		return l.leaving, nil
	}
	l.leaving = map[kind]net.PacketConn{}
	for _, k := range kinds() {
		if k.hook != output {
			continue
		}
		network, own := "udp4", hostV4
		if k.family == 6 {
			network, own = "udp6", hostV6
		}
		err := l.host.Do(func() (err error) {
			l.leaving[k], err = net.ListenPacket(network, netip.AddrPortFrom(netip.MustParseAddr(own), k.port()).String())
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("make a socket for what the host sends: %w", err)
		}
		l.closers = append(l.closers, l.leaving[k])
	}
	return l.leaving, nil
}

// leave sends a flow's datagram. That the host's own rules dropped or refused it is no
// failure.
func leave(by net.PacketConn, f flow) func() error {
	to := net.UDPAddrFromAddrPort(f.to)
	return func() error {
		_, err := by.WriteTo([]byte("flow"), to)
		for _, refused := range []error{unix.EPERM, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.EACCES} {
			if errors.Is(err, refused) {
				return nil
			}
		}
		return err
	}
}
