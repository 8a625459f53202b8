package link

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Toward is the name of the device that a packet to an address leaves by, as
// the routing tables say; the way back from there comes in by the same one
// unless routing is asymmetric.
func Toward(to netip.Addr) (string, error) {
	device, _, err := Way(to, 0)
	return device, err
}

// Way is Toward for packets that bear a mark, with the address of this host that
// they bear where their sender chooses none.
func Way(to netip.Addr, mark uint32) (device string, source netip.Addr, err error) {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Mark: mark})
	if err != nil {
		return "", netip.Addr{}, fmt.Errorf("find the route to %s: %w", to, err)
	}
	for _, r := range routes {
		if r.LinkIndex == 0 {
			continue
		}
		found, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return "", netip.Addr{}, fmt.Errorf("find the route to %s: %w", to, err)
		}
		source, _ := netip.AddrFromSlice(r.Src)
		return found.Attrs().Name, source.Unmap(), nil
	}
	return "", netip.Addr{}, fmt.Errorf("find the route to %s: it leaves by no device", to)
}
