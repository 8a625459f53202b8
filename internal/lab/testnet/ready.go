package testnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kernel finishes a link by and by: the carrier is reported, a link-local
// address made, and the multicast groups joined by which neighbours find an
// IPv6 address, each by a worker of its own. A test that starts before that
// sees a packet lost; so set-up waits.

const readyPatience = 30 * time.Second

// awaitCarrier waits until the device runs and, unless it is a bridge's port,
// its addresses can be found by neighbours.
func (p *Port) awaitCarrier() {
	p.Namespace.net.helper()
	p.await("carrier", func() (bool, error) {
		link, err := p.Namespace.links.LinkByIndex(p.index)
		return err == nil && link.Attrs().RawFlags&unix.IFF_RUNNING != 0, err
	})
	p.await("a link-local address", func() (bool, error) {
		_, err := p.LinkLocal()
		return err == nil, nil
	})
	p.awaitAddresses()
	p.ready = true
}

// awaitAddresses waits until the device listens to the solicited-node group of
// each of its IPv6 addresses, and packets to them are taken as the host's own.
func (p *Port) awaitAddresses() {
	p.Namespace.net.helper()
	p.await("its multicast groups", func() (bool, error) {
		addrs, err := p.addresses6()
		if err != nil {
			return false, err
		}
		var text []byte
		err = p.Namespace.Do(func() (err error) {
			text, err = os.ReadFile("/proc/thread-self/net/igmp6")
			return err
		})
		for _, a := range addrs {
			b := a.As16()
			if !strings.Contains(string(text), fmt.Sprintf(" %s ff0200000000000000000001ff%x ", pad(p.Device), b[13:])) {
				return false, err
			}
			if own, err := p.Namespace.owns(a); !own {
				return false, err
			}
		}
		return true, err
	})
}

// Address gives a device that is up an address, as "192.0.2.1/24", without duplicate
// address detection, and waits until packets to it are taken as the host's own.
func (s *Namespace) Address(device, prefix string) {
	s.net.helper()
	s.MustRun("ip", "address", "add", prefix, "dev", device, "nodad")
	(&Port{Namespace: s, Device: device}).await("the local route of "+prefix, func() (bool, error) {
		return s.owns(netip.MustParsePrefix(prefix).Addr())
	})
}

// owns tells whether there is a local route to an address. The kernel makes that of
// an IPv6 address on a work queue, after it has listed the address (addrconf_dad_start
// in net/ipv6/addrconf.c).
func (s *Namespace) owns(a netip.Addr) (bool, error) {
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := s.links.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, nil
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Type == unix.RTN_LOCAL && r.Dst != nil && r.Dst.IP.Equal(a.AsSlice())
	}), err
}

// pad writes a device's name as the tables of /proc/net do.
func pad(device string) string { return fmt.Sprintf("%-15s", device) }

func (p *Port) await(what string, done func() (bool, error)) {
	p.Namespace.net.helper()
	for deadline := time.Now().Add(readyPatience); ; time.Sleep(time.Millisecond) {
		ok, err := done()
		if err != nil {
			p.Namespace.net.fail("watch %s of %s: %w", p.Device, p.Namespace.label, err)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			p.Namespace.net.fail("%s of %s still lacks %s after %s", p.Device, p.Namespace.label, what, readyPatience)
		}
	}
}

// LinkLocal is the port's IPv6 link-local address.
func (p *Port) LinkLocal() (netip.Addr, error) {
	addrs, err := p.addresses6()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range addrs {
		if a.IsLinkLocalUnicast() {
			return a, nil
		}
	}
	return netip.Addr{}, errors.New("no link-local address on " + p.Device)
}

// addresses6 are the IPv6 addresses of the device that are fit for use.
func (p *Port) addresses6() ([]netip.Addr, error) {
	var list []netlink.Addr
	var err error = netlink.ErrDumpInterrupted // something changed meanwhile: ask again
	for errors.Is(err, netlink.ErrDumpInterrupted) {
		list, err = p.Namespace.links.AddrList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: p.index}}, netlink.FAMILY_V6)
	}
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && a.Flags&unix.IFA_F_TENTATIVE == 0 {
			out = append(out, ip)
		}
	}
	return out, nil
}
