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

// Lookup is a packet for which the kernel is asked where its routing leads it.
type Lookup struct {
	Source, Destination netip.Addr // Source may be invalid: not chosen yet
	In                  int        // index of the device that it comes in by; 0: the host sends it
	Mark                uint32
	TOS                 uint8
	Protocol            uint8  // IPPROTO_*
	SourcePort, Port    uint16 // 0 where it has none
	User                int64  // of the socket that sends it; -1: none
}

// Found is what the kernel's routing says of a packet.
type Found struct {
	Type uint8 // RTN_*: RTN_UNICAST, RTN_LOCAL, RTN_UNREACHABLE, ...
	// Hops are the devices that it may leave by: several where the route has
	// several next hops of which a hash chooses.
	Hops   []int
	Chosen int        // of Hops, for this packet; 0 is none
	Via    netip.Addr // the router of that one; invalid: the destination is the neighbour
	Source netip.Addr // that the host's own packet bears, as the route prefers it
	// Error is why the kernel has no way for it: ENETUNREACH and EHOSTUNREACH, EACCES
	// (prohibit), EINVAL (blackhole; or its source is refused on this device, as
	// EXDEV by rp_filter too). 0 is none.
	Error unix.Errno
}

// Ask asks the kernel (RTM_GETROUTE) what it would do with a packet now: policy
// rules, metrics, next hops and VRFs included (net/ipv4/route.c,
// inet_rtm_getroute; net/ipv6/route.c, inet6_rtm_getroute). The error is for
// what keeps the question from being asked.
func Ask(l Lookup) (Found, error) {
	chosen, err := ask(l, unix.RTM_F_LOOKUP_TABLE)
	var refused unix.Errno
	switch {
	case errors.As(err, &refused) && slices.Contains([]unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EXDEV, unix.ENETDOWN}, refused):
		return Found{Type: unix.RTN_UNREACHABLE, Error: refused}, nil
	case err != nil:
		return Found{}, fmt.Errorf("ask for the route to %s: %w", l.Destination, err)
	}
	if len(chosen.Hops) > 0 {
		chosen.Chosen = chosen.Hops[0]
	}
	switch chosen.Type {
	case unix.RTN_BLACKHOLE:
		chosen.Error = unix.EINVAL
	case unix.RTN_PROHIBIT:
		chosen.Error = unix.EACCES
	case unix.RTN_UNREACHABLE:
		chosen.Error = unix.ENETUNREACH
	case unix.RTN_UNICAST:
		if whole, err := ask(l, unix.RTM_F_FIB_MATCH); err == nil && len(whole.Hops) > 1 {
			chosen.Hops = whole.Hops
		}
	}
	return chosen, nil
}

func ask(l Lookup, flags uint32) (Found, error) {
	family, bits := uint8(unix.AF_INET), uint8(32)
	if l.Destination.Is6() {
		family, bits = unix.AF_INET6, 128
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Dst_len: bits, Tos: l.TOS, Flags: flags}})
	add := func(kind int, data []byte) { request.AddData(nl.NewRtAttr(kind, data)) }
	u32 := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	add(unix.RTA_DST, l.Destination.AsSlice())
	if l.Source.IsValid() && !l.Source.IsUnspecified() {
		add(unix.RTA_SRC, l.Source.AsSlice())
	}
	if l.In != 0 {
		add(unix.RTA_IIF, u32(uint32(l.In)))
	}
	if l.Mark != 0 {
		add(unix.RTA_MARK, u32(l.Mark))
	}
	if l.User >= 0 && l.In == 0 {
		add(unix.RTA_UID, u32(uint32(l.User)))
	}
	// The kernel takes no other protocols (rtm_getroute_parse_ip_proto).
	if slices.Contains([]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}, l.Protocol) {
		add(unix.RTA_IP_PROTO, []byte{l.Protocol})
		if l.SourcePort != 0 {
			add(unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, l.SourcePort))
		}
		if l.Port != 0 {
			add(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, l.Port))
		}
	}
	replies, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err != nil {
		return Found{}, err
	}
	if len(replies) == 0 || len(replies[0]) < unix.SizeofRtMsg {
		return Found{}, errors.New("the kernel answers with no route")
	}
	return parseFound(replies[0])
}

func parseFound(message []byte) (Found, error) {
	found := Found{Type: message[7]} // struct rtmsg: rtm_type
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofRtMsg:])
	if err != nil {
		return found, err
	}
	found.Via = router(attributes)
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.RTA_PREFSRC:
			found.Source = addressOf(a.Value)
		case unix.RTA_OIF:
			found.Hops = append(found.Hops, int(number(a.Value)))
		case unix.RTA_MULTIPATH:
			hops, err := nextHops(a.Value)
			if err != nil {
				return found, err
			}
			for _, h := range hops {
				if !h.Dead {
					found.Hops = append(found.Hops, h.Index)
				}
			}
		}
	}
	slices.Sort(found.Hops)
	found.Hops = slices.Compact(found.Hops)
	return found, nil
}

func addressOf(value []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(value)
	return a.Unmap()
}
