package link

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device is one network device, and where the kernel sends what goes by it.
type Device struct {
	Name   string
	Index  int
	Kind   string // as Link has it
	Parent int    // index of the device that it is made on, in the same namespace; 0 is none
	Master int    // index of the bridge or bond that it is a port of; 0 is none
	Ends   *Ends  // of a tunnel that the kernel itself carries; else nil
	ID     uint32 // if_id of an xfrm interface
}

// Ends is what the outer packets of a tunnel are.
type Ends struct {
	Local, Remote netip.Addr // invalid: any; a tunnel with any remote end learns them
	Protocol      uint8      // IANA; 0: ESP or AH, by the IPsec states between the ends
	Inner         bool       // Protocol is that of the inner packet's family: IPv4 4, IPv6 41
	Port          uint16     // of UDP, that packets from the other end come to; 0 is none
}

// Outer packets of tunnels, IANA's protocol numbers.
const (
	gre = 47
	udp = unix.IPPROTO_UDP
)

// Devices returns all devices with the ends of the tunnels among them.
func Devices() ([]Device, error) {
	links, err := dump("network devices", netlink.LinkList)
	if err != nil {
		return nil, err
	}
	var all []Device
	for _, l := range links {
		a := l.Attrs()
		d := Device{Name: a.Name, Index: a.Index, Kind: l.Type(), Master: a.MasterIndex, Ends: ends(l)}
		if a.NetNsID < 0 {
			d.Parent = a.ParentIndex
		}
		if x, is := l.(*netlink.Xfrmi); is {
			d.ID = x.Ifid
		}
		all = append(all, d)
	}
	return all, nil
}

func ends(l netlink.Link) *Ends {
	fou := func(e *Ends, kind, port uint16) *Ends {
		if kind != 0 { // FOU or GUE (include/uapi/linux/if_tunnel.h, tunnel_encap_types)
			e.Protocol, e.Inner, e.Port = udp, false, port
		}
		return e
	}
	switch t := l.(type) {
	case *netlink.Iptun:
		return fou(between(t.Local, t.Remote, Ends{Inner: true}), t.EncapType, t.EncapDport)
	case *netlink.Sittun:
		return fou(between(t.Local, t.Remote, Ends{Inner: true}), t.EncapType, t.EncapDport)
	case *netlink.Ip6tnl:
		return fou(between(t.Local, t.Remote, Ends{Inner: true}), t.EncapType, t.EncapDport)
	case *netlink.Gretun:
		return fou(between(t.Local, t.Remote, Ends{Protocol: gre}), t.EncapType, t.EncapDport)
	case *netlink.Gretap:
		return fou(between(t.Local, t.Remote, Ends{Protocol: gre}), t.EncapType, t.EncapDport)
	case *netlink.Vti:
		return between(t.Local, t.Remote, Ends{})
	case *netlink.Vxlan:
		return between(t.SrcAddr, t.Group, Ends{Protocol: udp, Port: uint16(t.Port)}) //nolint:gosec // the kernel's u16
	case *netlink.Geneve:
		return between(nil, t.Remote, Ends{Protocol: udp, Port: t.Dport})
	}
	return nil
}

func between(local, remote net.IP, e Ends) *Ends {
	end := func(ip net.IP) netip.Addr {
		a, ok := netip.AddrFromSlice(ip)
		if a = a.Unmap(); !ok || a.IsUnspecified() || a.IsMulticast() {
			return netip.Addr{}
		}
		return a
	}
	e.Local, e.Remote = end(local), end(remote)
	return &e
}

// PortOf is the index of the port by which a bridge reaches an address that is on
// its network, 0 where it has not learned that.
func PortOf(bridge int, address netip.Addr) (int, error) {
	known, err := dump("neighbours", func() ([]netlink.Neigh, error) {
		return netlink.NeighList(bridge, netlink.FAMILY_ALL)
	})
	if err != nil {
		return 0, err
	}
	var hardware net.HardwareAddr
	for _, n := range known {
		if a, ok := netip.AddrFromSlice(n.IP); ok && a.Unmap() == address {
			hardware = n.HardwareAddr
		}
	}
	if len(hardware) == 0 {
		return 0, nil
	}
	entries, err := dump("addresses that bridges have learned", func() ([]netlink.Neigh, error) {
		return netlink.NeighList(0, unix.AF_BRIDGE)
	})
	if err != nil {
		return 0, err
	}
	for _, n := range entries {
		if n.MasterIndex == bridge && n.LinkIndex != bridge && bytes.Equal(n.HardwareAddr, hardware) {
			return n.LinkIndex, nil
		}
	}
	return 0, nil
}

// PPPoE is how many PPP sessions the namespace has over Ethernet, whose packets are
// inside of no other (drivers/net/ppp/pppoe.c).
func PPPoE() (int, error) {
	text, err := os.ReadFile("/proc/thread-self/net/pppoe")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list PPPoE sessions: %w", err)
	}
	return max(bytes.Count(text, []byte("\n"))-1, 0), nil // the first line is the heading
}
