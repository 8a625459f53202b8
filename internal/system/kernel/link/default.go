package link

import (
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// DefaultRoutes returns the indices of the devices that the unicast default
// routes of the main table leave by, IPv4 and IPv6, sorted.
func DefaultRoutes() ([]int, error) {
	hops, err := defaultHops()
	var indices []int
	for _, h := range hops {
		if h.Index != 0 {
			indices = append(indices, h.Index)
		}
	}
	slices.Sort(indices)
	return slices.Compact(indices), err
}

// Gateways returns the routers that the unicast default routes of the main table
// go to, in the kernel's order.
func Gateways() ([]netip.Addr, error) {
	hops, err := defaultHops()
	var out []netip.Addr
	for _, h := range hops {
		if h.Via.IsValid() {
			out = append(out, h.Via)
		}
	}
	return out, err
}

// defaultHops are the ways of the unicast default routes of the main table.
func defaultHops() (out []Hop, err error) {
	routes, err := routesWhere(unix.RT_TABLE_MAIN, math.MaxInt, func(m []byte) bool {
		return m[routeLength] == 0 && m[routeType] == unix.RTN_UNICAST
	})
	for _, r := range routes {
		out = append(out, r.Hops...)
	}
	return out, err
}
