package starter

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/sorting"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/process"
	"sluice/internal/system/kernel/socket"
	"sluice/internal/system/kernel/wireguard"
)

// Situation is what a first policy is written from.
type Situation struct {
	Facts     host.Facts
	Listeners []Listener // by protocol and port
	SSHPorts  []uint16   // on which ssh servers listen
}

// Listener is a port that programs of the host wait at.
type Listener struct {
	Protocol  string // "tcp" or "udp"
	Port      uint16
	Addresses []netip.Addr // sorted; the unspecified ones stand for all of a family
	Programs  []string     // names, sorted; empty where they may not be read
	// Serves says of UDP that others ask it first, as far as the kernel shows that;
	// TCP says so itself.
	Serves bool
}

// Describe reads the situation of the network namespace of the calling thread;
// a goroutine that has entered one must be locked to it.
func Describe(ctx context.Context) (Situation, error) {
	facts, err := host.Describe(ctx, host.OwnSession())
	if err != nil {
		return Situation{}, err
	}
	tcp, err := socket.TCP()
	if err != nil {
		return Situation{}, fmt.Errorf("find what listens: %w", err)
	}
	udp, err := socket.UDP()
	if err != nil {
		return Situation{}, fmt.Errorf("find what listens: %w", err)
	}
	owners, err := process.Owners()
	if err != nil {
		return Situation{}, fmt.Errorf("find what listens: %w", err)
	}
	s := Situation{Facts: facts, SSHPorts: host.SSHPorts(tcp, owners)}
	s.Listeners = listeners(append(tcp, udp...), owners)
	if err := s.nameTunnels(); err != nil {
		s.Facts.Unread = append(s.Facts.Unread, "ports of tunnels: "+err.Error())
	}
	for _, peer := range facts.SSHClients {
		s.SSHPorts = append(s.SSHPorts, peer.Local.Port())
	}
	slices.Sort(s.SSHPorts)
	s.SSHPorts = slices.Compact(s.SSHPorts)
	return s, nil
}

// listeners gathers the sockets that wait for others, by protocol and port.
func listeners(sockets []socket.Socket, owners map[uint32][]process.Process) []Listener {
	type key struct {
		protocol string
		port     uint16
	}
	at := map[key]*Listener{}
	for _, s := range sockets {
		waits := s.Protocol == "tcp" && s.State == socket.Listen ||
			s.Protocol == "udp" && s.State == socket.Close && s.Remote.Port() == 0
		if !waits || s.Local.Port() == 0 {
			continue
		}
		k := key{s.Protocol, s.Local.Port()}
		if at[k] == nil {
			at[k] = &Listener{Protocol: s.Protocol, Port: s.Local.Port()}
		}
		l := at[k]
		// Sockets that share a port share what comes to it, and the kernel's own have
		// no process; who only asks others has no use for either.
		l.Serves = l.Serves || len(owners[s.Inode]) == 0 || slices.Contains(l.Addresses, s.Local.Addr())
		l.Addresses = append(l.Addresses, s.Local.Addr())
		for _, p := range owners[s.Inode] {
			if p.Name != "" {
				l.Programs = append(l.Programs, p.Name)
			}
		}
	}
	var all []Listener
	for k, l := range at {
		l.Serves = l.Serves || k.protocol == "tcp" || at[key{"tcp", k.port}] != nil
		l.Addresses = sorting.Unique(l.Addresses, netip.Addr.Compare)
		slices.Sort(l.Programs)
		l.Programs = slices.Compact(l.Programs)
		all = append(all, *l)
	}
	sorting.By(all, func(a, b Listener) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return all
}

// nameTunnels says which of the kernel's own sockets are of tunnels: no process holds
// them.
func (s *Situation) nameTunnels() error {
	names := map[uint16][]string{}
	guards, err := wireguard.Devices()
	for _, d := range guards {
		names[d.Port] = append(names[d.Port], "WireGuard ("+d.Name+")")
	}
	devices, failed := link.Devices()
	for _, d := range devices {
		if d.Ends != nil && d.Ends.Port != 0 {
			names[d.Ends.Port] = append(names[d.Ends.Port], d.Kind+" ("+d.Name+")")
		}
	}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		if of := names[l.Port]; l.Protocol == "udp" && len(of) > 0 {
			l.Serves = true
			if len(l.Programs) == 0 {
				l.Programs = of
			}
		}
	}
	return cmp.Or(err, failed)
}

// onlyLoopback says whether no other host can reach it.
func (l Listener) onlyLoopback() bool {
	return !slices.ContainsFunc(l.Addresses, func(a netip.Addr) bool { return !a.IsLoopback() })
}
