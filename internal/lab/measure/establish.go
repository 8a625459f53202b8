package measure

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/conntrack"
)

// Connect puts a TCP connection from a client to the lab into its connection
// table, established and assured. The rules that are there decide whether the kernel
// tracks anything in this namespace.
func (l *Lab) Connect(from netip.Addr, port uint16, to netip.AddrPort) error {
	return l.Namespace.Do(func() error {
		return conntrack.Create(conntrack.Flow{
			Protocol: unix.IPPROTO_TCP, Answered: true,
			Original: conntrack.Tuple{Source: from, SourcePort: port, Destination: to.Addr(), DestinationPort: to.Port()},
		})
	})
}

// Establish makes the flows of a traffic known connections that were answered: it
// sends the first packet of each through the rules as they are, so that what they do
// with a new connection is done (its addresses rewritten), gives the entries that are
// then in the connection table the state of an answered one, and sends each flow's
// next packets, by which rules may put it into a flowtable. The flows differ in
// address or port. It returns how many entries there are: none without rules that
// track.
//
// TCP's flags are those of the later packets, such as "A".
func (l *Lab) Establish(ctx context.Context, t Traffic, way Way) (int, error) {
	first := t
	first.Through = true
	if t.Flags != "" {
		first.Flags = "S"
	}
	if err := l.sendAll(ctx, first, way, 1); err != nil {
		return 0, err
	}
	n := 0
	if err := l.Namespace.Do(func() (err error) { n, err = answer(t); return err }); err != nil {
		return n, fmt.Errorf("establish connections in %s: %w", l.Namespace.Label(), err)
	}
	t.Through = true
	return n, l.sendAll(ctx, t, way, 2)
}

func (l *Lab) sendAll(ctx context.Context, t Traffic, way Way, times int) error {
	s, err := LoadFor(t, way)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = l.Inject(ctx, s, times*len(t.Flows))
	return err
}

// answer gives the entries of the flows the state of answered connections.
func answer(t Traffic) (int, error) {
	wanted := make(map[conntrack.Tuple]bool, len(t.Flows))
	for _, f := range t.Flows {
		wanted[conntrack.Tuple{
			Source: f.From.Addr(), SourcePort: f.From.Port(), Destination: f.To.Addr(), DestinationPort: f.To.Port(),
		}] = true
	}
	protocol := uint8(unix.IPPROTO_TCP)
	if t.Flags == "" {
		protocol = unix.IPPROTO_UDP
	}
	entries, err := conntrack.List()
	if err != nil {
		return 0, err
	}
	var known []conntrack.Flow
	for _, e := range entries {
		if e.Protocol == protocol && wanted[e.Original] {
			known = append(known, conntrack.Flow{Protocol: protocol, Original: e.Original, Reply: e.Reply, Answered: true})
		}
	}
	return len(known), conntrack.CreateAll(known)
}

// Answered makes known connections that the lab itself has begun, with the flows of
// a traffic as what answers them.
func (l *Lab) Answered(t Traffic) error {
	protocol := uint8(unix.IPPROTO_TCP)
	if t.Flags == "" {
		protocol = unix.IPPROTO_UDP
	}
	begun := make([]conntrack.Flow, len(t.Flows))
	for i, f := range t.Flows {
		begun[i] = conntrack.Flow{Protocol: protocol, Answered: true, Original: conntrack.Tuple{
			Source: f.To.Addr(), SourcePort: f.To.Port(), Destination: f.From.Addr(), DestinationPort: f.From.Port(),
		}}
	}
	return l.Namespace.Do(func() error { return conntrack.CreateAll(begun) })
}
