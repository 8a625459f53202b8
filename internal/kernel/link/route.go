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
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return "", fmt.Errorf("find the route to %s: %w", to, err)
	}
	for _, r := range routes {
		if r.LinkIndex == 0 {
			continue
		}
		device, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return "", fmt.Errorf("find the route to %s: %w", to, err)
		}
		return device.Attrs().Name, nil
	}
	return "", fmt.Errorf("find the route to %s: it leaves by no device", to)
}
