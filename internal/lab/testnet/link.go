package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Port is a network device of a namespace: one end of a veth pair, or a bridge.
type Port struct {
	Namespace *Namespace
	Device    string
	MAC       net.HardwareAddr
	Peer      *Port // the other end; nil for a bridge
	index     int
	ready     bool

	// for Send
	open    sync.Once
	socket  int
	openErr error
}

// End says where one end of a veth pair goes: the namespace, the device's name
// there, and addresses with prefix length ("192.0.2.1/24").
type End struct {
	In        *Namespace
	Device    string
	Addresses []string
}

// Join connects two namespaces by a veth pair, both ends up. It returns the
// ports in the order of its arguments.
func (n *Net) Join(a, b End) (*Port, *Port) {
	n.helper()
	macA, macB := n.nextMAC(), n.nextMAC()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Device
	attrs.HardwareAddr = macA
	// The kernel reports a carrier at once only where the two ends have different
	// indexes (linkwatch_urgent_event in net/core/link_watch.c), else up to a
	// second later; so this end's index is out of the range of the other's.
	attrs.Index = 1000 + int(macA[4])<<8 + int(macA[5])
	pair := &netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         b.Device,
		PeerHardwareAddr: macB,
		PeerNamespace:    netlink.NsFd(int(b.In.handle)),
	}
	if err := a.In.links.LinkAdd(pair); err != nil {
		n.fail("join %s/%s and %s/%s: %w", a.In.label, a.Device, b.In.label, b.Device, err)
	}
	pa, pb := a.In.port(a.Device), b.In.port(b.Device)
	pa.Peer, pb.Peer = pb, pa
	pa.Address(a.Addresses...)
	pb.Address(b.Addresses...)
	pa.awaitCarrier()
	pb.awaitCarrier()
	return pa, pb
}

// Wire is Join of two ends that know each other's link-layer address, so that neither
// has to ask for it.
func (n *Net) Wire(a, b End) (*Port, *Port) {
	n.helper()
	pa, pb := n.Join(a, b)
	for _, side := range []struct {
		at, to    *Port
		addresses []string
	}{{pa, pb, b.Addresses}, {pb, pa, a.Addresses}} {
		for _, text := range side.addresses {
			address, _, _ := strings.Cut(text, "/")
			side.at.Neighbor(address, side.to.MAC)
		}
	}
	return pa, pb
}

// nextMAC makes locally administered addresses, unique within the Net.
func (n *Net) nextMAC() net.HardwareAddr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.macs++
	return net.HardwareAddr{0x02, 0x51, 0x00, byte(n.macs >> 16), byte(n.macs >> 8), byte(n.macs)}
}

// port raises a device and describes it.
func (s *Namespace) port(device string) *Port {
	s.net.helper()
	link, err := s.links.LinkByName(device)
	if err == nil {
		err = s.links.LinkSetUp(link)
	}
	if err != nil {
		s.net.fail("raise %s in %s: %w", device, s.label, err)
	}
	return &Port{Namespace: s, Device: device, MAC: link.Attrs().HardwareAddr, index: link.Attrs().Index}
}

// Bridge makes a bridge, up, with the given addresses and ports.
func (s *Namespace) Bridge(device string, addresses []string, ports ...*Port) *Port {
	s.net.helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = device
	attrs.HardwareAddr = s.net.nextMAC()
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := s.links.LinkAdd(bridge); err != nil {
		s.net.fail("make bridge %s in %s: %w", device, s.label, err)
	}
	for _, p := range ports {
		if err := s.links.LinkSetMasterByIndex(p.link(), bridge.Index); err != nil {
			s.net.fail("put %s into bridge %s of %s: %w", p.Device, device, s.label, err)
		}
	}
	b := s.port(device)
	b.Address(addresses...)
	if len(ports) > 0 {
		b.awaitCarrier()
	}
	return b
}

// Address adds addresses with prefix length, usable at once.
func (p *Port) Address(addresses ...string) {
	p.Namespace.net.helper()
	for _, text := range addresses {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			p.Namespace.net.fail("address of %s in %s: %w", p.Device, p.Namespace.label, err)
		}
		p.address(prefix, 0)
	}
	if p.ready {
		p.awaitAddresses()
	}
}

func (p *Port) address(address netip.Prefix, flags int) {
	p.Namespace.net.helper()
	addr := &netlink.Addr{IPNet: ipNet(address), Flags: flags}
	if address.Addr().Is6() {
		addr.Flags |= unix.IFA_F_NODAD
	}
	if err := p.Namespace.links.AddrAdd(p.link(), addr); err != nil {
		p.Namespace.net.fail("add address %s to %s in %s: %w", address, p.Device, p.Namespace.label, err)
	}
}

// Route sends a prefix ("default4" and "default6" stand for everything) to a
// gateway, or out of a device when the gateway is "dev NAME".
func (s *Namespace) Route(prefix, gateway string) {
	s.net.helper()
	if err := s.route(prefix, gateway); err != nil {
		s.net.fail("route %s by %s in %s: %w", prefix, gateway, s.label, err)
	}
}

func (s *Namespace) route(prefix, gateway string) error {
	dst, err := parseRoutePrefix(prefix)
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: dst}
	var device string
	if _, err := fmt.Sscanf(gateway, "dev %s", &device); err == nil {
		link, err := s.links.LinkByName(device)
		if err != nil {
			return err
		}
		route.LinkIndex = link.Attrs().Index
		route.Scope = netlink.SCOPE_LINK
	} else {
		gw, err := netip.ParseAddr(gateway)
		if err != nil {
			return err
		}
		route.Gw = gw.AsSlice()
	}
	return s.links.RouteReplace(route)
}

func parseRoutePrefix(text string) (*net.IPNet, error) {
	switch text {
	case "default4":
		text = "0.0.0.0/0"
	case "default6":
		text = "::/0"
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, err
	}
	return ipNet(p.Masked()), nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Own makes every address of the prefixes an address of this host, at the price
// of one route each: sockets can bind to them and packets to them are taken in.
// The other hosts need a route back (Route).
func (s *Namespace) Own(prefixes ...string) {
	s.net.helper()
	lo, err := s.links.LinkByName("lo")
	if err != nil {
		s.net.fail("find loopback of %s: %w", s.label, err)
	}
	for _, text := range prefixes {
		p, err := netip.ParsePrefix(text)
		if err == nil {
			err = s.links.RouteReplace(&netlink.Route{
				LinkIndex: lo.Attrs().Index,
				Dst:       ipNet(p.Masked()),
				Type:      unix.RTN_LOCAL,
				Scope:     netlink.SCOPE_HOST,
				Table:     unix.RT_TABLE_LOCAL,
			})
		}
		if err != nil {
			s.net.fail("own %s in %s: %w", text, s.label, err)
		}
	}
}

// AddressAlone adds an address, usable at once, without the route to its network that
// usually comes with one.
func (p *Port) AddressAlone(address netip.Prefix) {
	p.Namespace.net.helper()
	p.address(address, unix.IFA_F_NOPREFIXROUTE)
	if p.ready {
		p.awaitAddresses()
	}
}

// RouteBy sends a prefix out of this device to a router, which need not be in a
// network of it.
func (p *Port) RouteBy(router netip.Addr, prefix netip.Prefix) {
	p.Namespace.net.helper()
	err := p.Namespace.links.RouteReplace(&netlink.Route{
		LinkIndex: p.index, Dst: ipNet(prefix.Masked()), Gw: router.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	})
	if err != nil {
		p.Namespace.net.fail("route %s by %s on %s in %s: %w", prefix, router, p.Device, p.Namespace.label, err)
	}
}

// link is what the kernel knows the port by.
func (p *Port) link() netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: p.index}}
}

// Neighbor fixes the link-layer address of a neighbour, so that no
// resolution is needed before a packet to it.
func (p *Port) Neighbor(ip string, mac net.HardwareAddr) {
	p.Namespace.net.helper()
	addr, err := netip.ParseAddr(ip)
	if err == nil {
		err = p.Namespace.links.NeighSet(&netlink.Neigh{
			LinkIndex: p.index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
		})
	}
	if err != nil {
		p.Namespace.net.fail("set neighbour %s on %s in %s: %w", ip, p.Device, p.Namespace.label, err)
	}
}
