package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Rule is one rule of policy routing (ip-rule(8)), as the kernel keeps it
// (include/uapi/linux/fib_rules.h). What is zero or -1 is not asked of a packet.
type Rule struct {
	Family           int // unix.AF_INET or AF_INET6
	Priority         uint32
	Not              bool
	From, To         netip.Prefix
	In, Out          string
	Mark, Mask       uint32 // Mask 0: no mark is asked for
	TOS              uint8
	Protocol         uint8
	SourcePorts      [2]uint16
	Ports            [2]uint16
	Users            *[2]uint32
	Tunnel           uint64 // tunnel id, which no plain packet has
	Action           uint8  // FR_ACT_*: 1 lookup, 2 goto, 3 nop, 6 blackhole, 7 unreachable, 8 prohibit
	Table            uint32
	Goto             uint32
	VRF              bool // the table is that of the packet's VRF (l3mdev)
	SuppressLength   int  // a route found of at most this prefix length does not count; -1: none
	SuppressesGroups bool // routes by devices of a group do not count
}

// Rules returns the rules of one family, AF_INET or AF_INET6, in the order in
// which the kernel asks them; none where the kernel has no policy routing.
func Rules(family int) ([]Rule, error) {
	replies, err := dump("routing rules", func() ([][]byte, error) {
		request := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
		request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
		return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Rule
	for _, message := range replies {
		r, err := parseRule(message)
		if err != nil {
			return nil, fmt.Errorf("list routing rules: %w", err)
		}
		if r.Family == family {
			out = append(out, r)
		}
	}
	return out, nil
}

const ruleHeader = 12 // struct fib_rule_hdr

func parseRule(message []byte) (Rule, error) {
	if len(message) < ruleHeader {
		return Rule{}, errors.New("a rule is too short")
	}
	r := Rule{
		Family: int(message[0]), TOS: message[3], Table: uint32(message[4]), Action: message[7], SuppressLength: -1,
		Not: binary.NativeEndian.Uint32(message[8:])&0x2 != 0, // FIB_RULE_INVERT
	}
	attributes, err := nl.ParseRouteAttr(message[ruleHeader:])
	if err != nil {
		return r, err
	}
	prefix := func(value []byte, bits uint8) netip.Prefix {
		a, _ := netip.AddrFromSlice(value)
		return netip.PrefixFrom(a, int(bits))
	}
	for _, a := range attributes {
		pair := func() (p [2]uint16) {
			if len(a.Value) >= 4 {
				p = [2]uint16{binary.NativeEndian.Uint16(a.Value), binary.NativeEndian.Uint16(a.Value[2:])}
			}
			return p
		}
		switch a.Attr.Type {
		case nl.FRA_DST:
			r.To = prefix(a.Value, message[1])
		case nl.FRA_SRC:
			r.From = prefix(a.Value, message[2])
		case nl.FRA_IIFNAME:
			r.In = unix.ByteSliceToString(a.Value)
		case nl.FRA_OIFNAME:
			r.Out = unix.ByteSliceToString(a.Value)
		case nl.FRA_GOTO:
			r.Goto = number(a.Value)
		case nl.FRA_PRIORITY:
			r.Priority = number(a.Value)
		case nl.FRA_FWMARK:
			r.Mark = number(a.Value)
		case nl.FRA_FWMASK:
			r.Mask = number(a.Value)
		case nl.FRA_TUN_ID:
			if len(a.Value) >= 8 {
				r.Tunnel = binary.BigEndian.Uint64(a.Value)
			}
		case nl.FRA_SUPPRESS_IFGROUP:
			r.SuppressesGroups = number(a.Value) != 1<<32-1
		case nl.FRA_SUPPRESS_PREFIXLEN:
			if n := number(a.Value); n != 1<<32-1 {
				r.SuppressLength = int(n)
			}
		case nl.FRA_TABLE:
			r.Table = number(a.Value)
		case nl.FRA_L3MDEV:
			r.VRF = len(a.Value) > 0 && a.Value[0] != 0
		case nl.FRA_UID_RANGE:
			if len(a.Value) >= 8 {
				r.Users = &[2]uint32{number(a.Value), binary.NativeEndian.Uint32(a.Value[4:])}
			}
		case nl.FRA_IP_PROTO:
			if len(a.Value) > 0 {
				r.Protocol = a.Value[0]
			}
		case nl.FRA_SPORT_RANGE:
			r.SourcePorts = pair()
		case nl.FRA_DPORT_RANGE:
			r.Ports = pair()
		}
	}
	return r, nil
}
