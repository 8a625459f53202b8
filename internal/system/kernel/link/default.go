package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
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

// Where a struct rtmsg (rtnetlink(7)) has what is asked of each route of a table, which
// may be a million of them: no other is taken apart.
const (
	routeHeader   = unix.SizeofRtMsg
	routeFamily   = 0
	routeLength   = 1 // of the destination's prefix
	routeTable    = 4 // RT_TABLE_COMPAT (252) where it needs more than 8 bits
	routeType     = 7
	nextHopHeader = unix.SizeofRtNexthop
	nextHopIndex  = 4
	replyRoute    = unix.RTM_NEWROUTE
)

// defaultHops are the ways of the unicast default routes of the main table. The kernel
// cannot filter a dump by length (inet_dump_fib and inet6_dump_fib, ip_valid_fib_dump_req).
func defaultHops() (out []Hop, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		hops, err := dump("routes", func() (hops []Hop, err error) {
			var wrong error
			err = routesOf(family, unix.RT_TABLE_MAIN, func(m []byte) bool {
				if len(m) < routeHeader || m[routeFamily] != family || m[routeLength] != 0 || m[routeTable] != unix.RT_TABLE_MAIN || m[routeType] != unix.RTN_UNICAST {
					return true
				}
				hops, wrong = appendHops(hops, m[routeHeader:])
				return wrong == nil
			})
			return hops, errors.Join(err, wrong)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, hops...)
	}
	return out, nil
}

// routesOf calls with each route of a table, while they come, until the caller stops it.
func routesOf(family uint8, table uint32, each func(message []byte) bool) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer socket.Close()
	// Where the kernel does not know strict requests it sends all tables.
	_ = unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}})
	request.AddData(nl.NewRtAttr(unix.RTA_TABLE, binary.NativeEndian.AppendUint32(nil, table)))
	err = request.ExecuteIter(unix.NETLINK_ROUTE, replyRoute, each)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // no route was ever in the table, or the kernel lacks the family
	}
	return err
}

// appendHops takes the attributes of one route apart.
func appendHops(hops []Hop, attributes []byte) ([]Hop, error) {
	list, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return hops, fmt.Errorf("read a route: %w", err)
	}
	var one Hop
	for _, a := range list {
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.RTA_OIF:
			if len(a.Value) >= 4 {
				one.Index = int(binary.NativeEndian.Uint32(a.Value))
			}
		case unix.RTA_GATEWAY:
			one.Via, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_VIA: // a router of the other family: struct rtvia
			if len(a.Value) > 2 {
				one.Via, _ = netip.AddrFromSlice(a.Value[2:])
			}
		case unix.RTA_MULTIPATH:
			for rest := a.Value; len(rest) >= nextHopHeader; {
				size := int(binary.NativeEndian.Uint16(rest))
				if size < nextHopHeader || size > len(rest) {
					return hops, errors.New("read a route: a next hop's length cannot be")
				}
				before := len(hops)
				if hops, err = appendHops(hops, rest[nextHopHeader:size]); err != nil {
					return hops, err
				}
				index := int(binary.NativeEndian.Uint32(rest[nextHopIndex:]))
				if len(hops) == before {
					hops = append(hops, Hop{})
				}
				hops[len(hops)-1].Index = index
				rest = rest[min((size+3)&^3, len(rest)):]
			}
		}
	}
	if one.Index != 0 || one.Via.IsValid() {
		hops = append(hops, one)
	}
	return hops, nil
}
