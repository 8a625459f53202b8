// Package link lists the network devices, addresses, routes and routing rules of
// the network namespace that the calling thread is in, and asks the kernel where
// its routing leads a packet, over rtnetlink. host, starter, apply and the
// live trace (nftables/live) call it. It
// changes nothing.
//
// A goroutine that has entered a namespace must be locked to its thread: each
// call opens its own netlink socket there.
package link

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/sorting"
)

// Link is one network device.
type Link struct {
	Name      string
	Index     int
	Kind      string         // IFLA_INFO_KIND: "veth", "bridge"; "device" when the driver names none
	Master    int            // index of the device that this one belongs to, 0 is none
	Up        bool           // IFF_UP: set up by the administrator, with or without a carrier
	MTU       int            // bytes
	VRFTable  uint32         // of a VRF, the table of its routes
	Addresses []netip.Prefix // with the length of their network, host bits kept, in the kernel's order
}

// A dump that the kernel changed under is asked again, so often at most.
const dumpTries = 5

func dump[T any](what string, ask func() (T, error)) (T, error) {
	var got T
	var err error
	for range dumpTries {
		got, err = ask()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return got, fmt.Errorf("list %s: %w", what, err)
	}
	return got, nil
}

// List returns all devices by their index.
func List() ([]Link, error) {
	devices, err := dump("network devices", netlink.LinkList)
	if err != nil {
		return nil, err
	}
	addresses, err := dump("addresses", func() ([]netlink.Addr, error) {
		return netlink.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	links := make([]Link, 0, len(devices))
	for _, d := range devices {
		a := d.Attrs()
		l := Link{Name: a.Name, Index: a.Index, Kind: d.Type(), Master: a.MasterIndex, Up: a.RawFlags&unix.IFF_UP != 0, MTU: a.MTU}
		if vrf, is := d.(*netlink.Vrf); is {
			l.VRFTable = vrf.Table
		}
		for _, addr := range addresses {
			if addr.LinkIndex != a.Index || addr.IPNet == nil {
				continue
			}
			ip, ok := netip.AddrFromSlice(addr.IP)
			bits, size := addr.Mask.Size()
			if !ok || size == 0 {
				continue
			}
			if ip = ip.Unmap(); ip.Is4() && size == 128 {
				bits -= 96
			}
			l.Addresses = append(l.Addresses, netip.PrefixFrom(ip, bits))
		}
		links = append(links, l)
	}
	sorting.By(links, func(a, b Link) int { return a.Index - b.Index })
	return links, nil
}

// Lost is what a device received and gave to nobody, or was to send and did not, since it
// was made; and of how many.
type Lost struct {
	Missed  uint64 // no room in its ring: rx_missed_errors and rx_fifo_errors of struct rtnl_link_stats64
	Dropped uint64 // no room above it, or nobody there who takes its protocol: rx_dropped
	Unsent  uint64 // no room in its ring, or no way out: tx_dropped and tx_fifo_errors
	Packets uint64 // received and sent
}

// LostPackets reads that of all devices, by their index.
func LostPackets() (map[int]Lost, error) {
	devices, err := dump("network devices", netlink.LinkList)
	if err != nil {
		return nil, err
	}
	out := map[int]Lost{}
	for _, d := range devices {
		if s := d.Attrs().Statistics; s != nil {
			out[d.Attrs().Index] = Lost{s.RxMissedErrors + s.RxFifoErrors, s.RxDropped, s.TxDropped + s.TxFifoErrors, s.RxPackets + s.TxPackets}
		}
	}
	return out, nil
}

// Silent returns the neighbours that the kernel asked for and that did not answer
// (NUD_FAILED), until it forgets them.
func Silent() ([]netip.Addr, error) {
	all, err := dump("neighbours", func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, n := range all {
		if a, ok := netip.AddrFromSlice(n.IP); ok && n.State == unix.NUD_FAILED {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
}

// Peers returns the devices whose other end is in the network namespace that an open file
// stands for, by their index.
func Peers(namespace int) ([]int, error) {
	id, err := netlink.GetNetNsIdByFd(namespace)
	if err != nil {
		return nil, fmt.Errorf("ask for the number of a network namespace: %w", err)
	}
	if id < 0 {
		return nil, nil // no device leads there
	}
	devices, err := dump("network devices", netlink.LinkList)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, d := range devices {
		if a := d.Attrs(); a.NetNsID == id {
			out = append(out, a.Index)
		}
	}
	return out, nil
}
