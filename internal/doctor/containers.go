package doctor

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/importer"
	"sluice/internal/importer/loaded"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/process"
	"sluice/internal/system/kernel/socket"
)

// Endpoint is where a program waits for packets of a protocol.
type Endpoint struct {
	Protocol uint8
	At       netip.AddrPort
}

// Container is another network namespace, which a device of the host leads to.
type Container struct {
	Namespace string // a file that stands for it
	Addresses []netip.Addr
	Waiting   []Endpoint

	rewriting []*importer.Ruleset // of its own, that may rewrite destinations
	unknown   bool                // whether it has such rules
	asked     int                 // packets
}

// mostContainers bounds how many namespaces are looked into.
const mostContainers = 500

// seeContainers looks into the namespaces that devices of this one lead to: those with a
// name and those of running programs.
func (s *Seen) seeContainers() {
	names, err := netns.Names()
	if err != nil {
		s.unread("network namespaces", err)
	}
	var files []string
	for _, name := range names {
		files = append(files, "/run/netns/"+name)
	}
	running, err := process.Namespaces(mostContainers)
	if err != nil {
		s.unread("network namespaces", err)
	}
	files = slices.AppendSeq(files, maps.Values(running))
	seen := map[uint32]bool{}
	for _, file := range files {
		n, err := netns.Open(file)
		if err != nil {
			continue // it has ended
		}
		if peers, err := link.Peers(n.Descriptor()); err == nil && len(peers) > 0 && !seen[n.Number()] && len(seen) < mostContainers {
			seen[n.Number()] = true
			s.seeContainer(n, file)
		}
		_ = n.Close()
	}
}

func (s *Seen) seeContainer(n *netns.Namespace, file string) {
	c := Container{Namespace: file}
	if err := n.Do(func() error {
		links, err := link.List()
		if err != nil {
			return err
		}
		for _, l := range links {
			for _, a := range l.Addresses {
				c.Addresses = append(c.Addresses, a.Addr())
			}
		}
		tcp, err := socket.TCP()
		if err != nil {
			return err
		}
		c.Waiting, err = waiting(tcp)
		return err
	}); err != nil {
		s.unread("the network namespace "+c.Namespace, err)
		return
	}
	s.Containers = append(s.Containers, c)
}

// waiting are the sockets that take packets from anybody: those of TCP as they were listed,
// and of UDP.
func waiting(tcp []socket.Socket) (out []Endpoint, err error) {
	for _, l := range tcp {
		if l.State == socket.Listen {
			out = append(out, Endpoint{packet.TCP, l.Local})
		}
	}
	udp, err := socket.UDP()
	for _, u := range udp {
		if u.Remote.Port() == 0 {
			out = append(out, Endpoint{packet.UDP, u.Local})
		}
	}
	return out, err
}

// rewrites says that rules of the container's own may lead a packet to it elsewhere, or
// that it cannot be told.
func (c *Container) rewrites(p packet.Packet) bool {
	if c.asked == 0 {
		c.unknown = c.readRules() != nil
	}
	c.asked++
	return c.unknown || c.asked > mostServices || slices.ContainsFunc(c.rewriting, func(r *importer.Ruleset) bool {
		return meets(r, p.Family()) && reach.Evaluate(r.Program, p, packet.In).Packet.DNAT
	})
}

func (c *Container) readRules() error {
	n, err := netns.Open(c.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	return n.Do(func() error {
		rules, errs := loaded.Read(context.Background())
		c.rewriting = slices.DeleteFunc(rules, func(r *importer.Ruleset) bool {
			return !slices.ContainsFunc(r.Program.Hooks, func(h program.Hook) bool { return h.Kind == program.Prerouting && h.Phase == program.NAT })
		})
		return errors.Join(errs...)
	})
}
