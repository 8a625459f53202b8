package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Route is one route of one routing table.
type Route struct {
	To     netip.Prefix // /0 for default routes
	Table  uint32
	Type   uint8 // RTN_*
	Metric uint32
	TOS    uint8
	Hops   []Hop // none where the route leads nowhere (RTN_UNREACHABLE, ...)
}

// Hop is one way that a route leads.
type Hop struct {
	Via   netip.Addr // not valid: the destination itself is the neighbour
	Index int        // of the device
	Dead  bool       // the device is down
}

// Routes returns the routes of all tables, in the kernel's order, and false where
// there are more than most of them: the rest is then not read.
func Routes(most int) (routes []Route, whole bool, err error) {
	routes, err = routesWhere(unix.RT_TABLE_UNSPEC, most+1, func([]byte) bool { return true })
	return routes[:min(most, len(routes))], len(routes) <= most, err
}

// Local returns the prefixes of the local routing table for which the host is
// the destination itself (routes of type local), in the kernel's order.
func Local() (prefixes []netip.Prefix, err error) {
	routes, err := routesWhere(unix.RT_TABLE_LOCAL, math.MaxInt, func(m []byte) bool { return m[routeType] == unix.RTN_LOCAL })
	for _, r := range routes {
		prefixes = append(prefixes, r.To)
	}
	return prefixes, err
}

// Where a struct rtmsg and a struct rtnexthop (rtnetlink(7)) have what is read of them.
const (
	routeHeader   = unix.SizeofRtMsg
	routeFamily   = 0
	routeLength   = 1 // of the destination's prefix
	routeTOS      = 3
	routeTable    = 4 // RT_TABLE_COMPAT (252) where it needs more than 8 bits
	routeType     = 7
	routeFlags    = 8
	nextHopHeader = unix.SizeofRtNexthop
	nextHopFlags  = 2
	nextHopIndex  = 4
)

// routesWhere returns the routes of a table, of all where it is RT_TABLE_UNSPEC, that are
// wanted by their struct rtmsg, until there are so many. There may be a million, most of
// which are not wanted: no other is taken apart. The kernel cannot filter a dump by length
// (inet_dump_fib and inet6_dump_fib, ip_valid_fib_dump_req).
func routesWhere(table uint32, limit int, wanted func(message []byte) bool) ([]Route, error) {
	return dump("routes", func() (routes []Route, err error) {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			var wrong error
			err = routesOf(family, table, func(m []byte) bool {
				if len(m) < routeHeader || m[routeFamily] != family || number(m[routeFlags:])&unix.RTM_F_CLONED != 0 || !wanted(m) {
					return true
				}
				var r Route
				if r, wrong = parseRoute(m); wrong == nil && (table == unix.RT_TABLE_UNSPEC || r.Table == table) {
					routes = append(routes, r)
				}
				return wrong == nil && len(routes) < limit
			})
			if err = errors.Join(err, wrong); err != nil || len(routes) >= limit {
				break
			}
		}
		return routes, err
	})
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
	err = request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, each)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // no route was ever in the table, or the kernel lacks the family
	}
	return err
}

func parseRoute(m []byte) (Route, error) {
	r := Route{Table: uint32(m[routeTable]), Type: m[routeType], TOS: m[routeTOS]}
	to := netip.IPv4Unspecified()
	if m[routeFamily] == unix.AF_INET6 {
		to = netip.IPv6Unspecified()
	}
	one := Hop{Dead: number(m[routeFlags:])&unix.RTNH_F_DEAD != 0}
	list, err := nl.ParseRouteAttr(m[routeHeader:])
	for _, a := range list {
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.RTA_DST:
			to, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_TABLE:
			r.Table = number(a.Value)
		case unix.RTA_PRIORITY:
			r.Metric = number(a.Value)
		case unix.RTA_OIF:
			one.Index = int(number(a.Value))
		case unix.RTA_MULTIPATH:
			r.Hops, err = nextHops(a.Value)
		}
	}
	if err != nil {
		return r, fmt.Errorf("read a route: %w", err)
	}
	r.To = netip.PrefixFrom(to, int(m[routeLength]))
	if one.Via = router(list); one.Index != 0 {
		r.Hops = append(r.Hops, one)
	}
	return r, nil
}

// nextHops takes RTA_MULTIPATH apart.
func nextHops(value []byte) (hops []Hop, err error) {
	for len(value) >= nextHopHeader {
		size := int(binary.NativeEndian.Uint16(value))
		if size < nextHopHeader || size > len(value) {
			return nil, errors.New("a next hop's length cannot be")
		}
		list, err := nl.ParseRouteAttr(value[nextHopHeader:size])
		if err != nil {
			return nil, err
		}
		hops = append(hops, Hop{Via: router(list), Index: int(number(value[nextHopIndex:])), Dead: value[nextHopFlags]&unix.RTNH_F_DEAD != 0})
		value = value[min((size+3)&^3, len(value)):]
	}
	return hops, nil
}

// router is the one that a route or a next hop goes to.
func router(of []syscall.NetlinkRouteAttr) (via netip.Addr) {
	for _, a := range of {
		switch a.Attr.Type {
		case unix.RTA_GATEWAY:
			via = addressOf(a.Value)
		case unix.RTA_VIA: // of the other family, struct rtvia: its family, then the address
			if len(a.Value) > 2 {
				via = addressOf(a.Value[2:])
			}
		}
	}
	return via
}

// number is an attribute's value, 0 where it is none.
func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}
