// Package xfrm reads the IPsec policies and states of the network namespace that
// the calling thread is in, over NETLINK_XFRM (include/uapi/linux/xfrm.h). host asks
// it which packets carry those of somebody who is logged in. It changes nothing.
package xfrm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/sorting"
)

// Policy says what packets have to be inside of to be let in.
type Policy struct {
	Source, Destination netip.Prefix
	Protocol            uint8  // 0 is every one
	SourcePort, Port    uint16 // 0 is every one
	Priority            int    // the lowest is asked first
	Interface           uint32 // if_id of the xfrm interface that it is of; 0 is none
	Blocks              bool
	Templates           []Template
}

// Template is one layer that a packet has to have come in.
type Template struct {
	Source, Destination netip.Addr // of the outer packet; in tunnel mode alone, else invalid
	Protocol            uint8      // ESP, AH or IPComp
	ReqID               int        // 0 is every state
}

// State is one security association.
type State struct {
	Source, Destination netip.Addr
	Protocol            uint8
	ReqID               int
	Encapsulated        bool   // in UDP (RFC 3948)
	SourcePort, Port    uint16 // of that UDP
}

var families = []int{unix.AF_INET, unix.AF_INET6}

// absent says that the kernel has no IPsec.
func absent(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ENOENT)
}

// PoliciesIn returns the policies for packets that come in to the host, the one
// that is asked first in front; none where the kernel has no IPsec.
func PoliciesIn() ([]Policy, error) {
	var all []Policy
	for _, family := range families {
		found, err := netlink.XfrmPolicyList(family)
		if absent(err) {
			return nil, nil
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list IPsec policies: %w", err)
		}
		for _, p := range found {
			if p.Dir == netlink.XFRM_DIR_IN {
				all = append(all, policy(p, family))
			}
		}
	}
	sorting.StableBy(all, func(a, b Policy) int { return a.Priority - b.Priority })
	return all, nil
}

func policy(p netlink.XfrmPolicy, family int) Policy {
	out := Policy{
		Source: prefix(p.Src, family), Destination: prefix(p.Dst, family), Protocol: uint8(p.Proto),
		SourcePort: uint16(p.SrcPort), Port: uint16(p.DstPort), //nolint:gosec // the kernel's u16
		Priority: p.Priority, Interface: uint32(p.Ifid), Blocks: p.Action == netlink.XFRM_POLICY_BLOCK, //nolint:gosec // the kernel's u32
	}
	for _, t := range p.Tmpls {
		if t.Optional != 0 {
			continue
		}
		template := Template{Protocol: uint8(t.Proto), ReqID: t.Reqid}
		if t.Mode == netlink.XFRM_MODE_TUNNEL {
			template.Source, template.Destination = address(t.Src), address(t.Dst)
		}
		out.Templates = append(out.Templates, template)
	}
	return out
}

// States returns the security associations of both families.
func States() ([]State, error) {
	var all []State
	for _, family := range families {
		found, err := netlink.XfrmStateList(family)
		if absent(err) {
			return nil, nil
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list IPsec states: %w", err)
		}
		for _, s := range found {
			state := State{Source: address(s.Src), Destination: address(s.Dst), Protocol: uint8(s.Proto), ReqID: s.Reqid}
			if s.Encap != nil {
				state.Encapsulated = true
				state.SourcePort, state.Port = uint16(s.Encap.SrcPort), uint16(s.Encap.DstPort) //nolint:gosec // the kernel's u16
			}
			all = append(all, state)
		}
	}
	return all, nil
}

// Matches says whether a packet is one that the policy is about.
func (p Policy) Matches(source, destination netip.AddrPort, protocol uint8) bool {
	return p.Source.Contains(source.Addr()) && p.Destination.Contains(destination.Addr()) &&
		(p.Protocol == 0 || p.Protocol == protocol) &&
		(p.SourcePort == 0 || p.SourcePort == source.Port()) && (p.Port == 0 || p.Port == destination.Port())
}

func address(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// prefix reads a network of a selector. The library takes an IPv6 address whose
// last 96 bits are zero for one of IPv4, and keeps no length beyond 32 of it.
func prefix(n *net.IPNet, family int) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a := address(n.IP)
	bits, size := n.Mask.Size()
	if family == unix.AF_INET6 && a.Is4() {
		first := a.As4()
		a = netip.AddrFrom16([16]byte{first[0], first[1], first[2], first[3]})
		if size == 0 {
			bits = 32
		}
	}
	return netip.PrefixFrom(a, bits)
}
