// Package wireguard reads the WireGuard devices of the network namespace that the
// calling thread is in: those of the kernel by generic netlink, and those that a
// program carries by its socket below /run/wireguard (wg(8), "cross-platform
// userspace"). host asks it where the packets of a tunnel come from, and starter
// which ports it waits at. It changes nothing.
package wireguard

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"sluice/internal/base/sorting"
)

// Device is one WireGuard device. Its keys are not read on.
type Device struct {
	Name  string
	Port  uint16 // that it waits at for UDP; 0 while it is down
	Mark  uint32 // that its own packets bear, for the policy routing of them; 0 is none
	Peers []Peer
}

// Peer is one peer of a device.
type Peer struct {
	Endpoint  netip.AddrPort // where its last packet came from; invalid: none came, and none is configured
	Allowed   []netip.Prefix // addresses inside of the tunnel
	Keepalive time.Duration  // that this host sends it an empty packet after at the latest; 0 is off
}

// Devices returns all devices by their names; none where the kernel has no
// WireGuard.
func Devices() ([]Device, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("ask for WireGuard: %w", err)
	}
	defer client.Close()
	found, err := client.Devices()
	if err != nil {
		return nil, fmt.Errorf("list WireGuard devices: %w", err)
	}
	var all []Device
	for _, d := range found {
		all = append(all, convert(d))
	}
	sorting.By(all, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func convert(d *wgtypes.Device) Device {
	out := Device{Name: d.Name, Port: uint16(d.ListenPort), Mark: uint32(d.FirewallMark)} //nolint:gosec // the kernel's u16 and u32
	for _, p := range d.Peers {
		peer := Peer{Keepalive: p.PersistentKeepaliveInterval}
		if p.Endpoint != nil {
			at := p.Endpoint.AddrPort()
			peer.Endpoint = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		}
		for _, n := range p.AllowedIPs {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				bits, _ := n.Mask.Size()
				peer.Allowed = append(peer.Allowed, netip.PrefixFrom(a.Unmap(), bits))
			}
		}
		out.Peers = append(out.Peers, peer)
	}
	return out
}

// PeerOf is the peer that packets from an address inside of the tunnel come from:
// WireGuard drops them from any other. ok is false where there is none.
func (d Device) PeerOf(inside netip.Addr) (peer Peer, ok bool) {
	longest := -1
	for _, p := range d.Peers {
		for _, n := range p.Allowed {
			if n.Contains(inside) && n.Bits() > longest {
				longest, peer, ok = n.Bits(), p, true
			}
		}
	}
	return peer, ok
}
