package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux: if_addr.h, rtnetlink.h, fib_rules.h.
const (
	addressHeader = unix.SizeofIfAddrmsg
	routeHeader   = unix.SizeofRtMsg
	ruleHeader    = 12 // struct fib_rule_hdr

	routeNextHops    = unix.RTA_MULTIPATH
	routeCacheInfo   = unix.RTA_CACHEINFO
	routeNextHopID   = 30 // RTA_NH_ID
	nextHopHeader    = unix.SizeofRtNexthop
	nextHopFlagsKept = unix.RTNH_F_ONLINK | unix.RTNH_F_PERVASIVE

	ruleInverted = 2 // FIB_RULE_INVERT, the only flag that is somebody's wish
)

var families = []uint8{unix.AF_INET, unix.AF_INET6}

// routing is the addresses, routes and rules of one namespace.
type routing struct{ addresses, routes, rules []object }

func readRouting(conn *netlink.Conn) (routing, error) {
	var r routing
	for _, family := range families {
		for _, kind := range []struct {
			get   uint16
			fixed int
			into  *[]object
			name  string
		}{
			{unix.RTM_GETADDR, addressHeader, &r.addresses, "addresses"},
			{unix.RTM_GETROUTE, routeHeader, &r.routes, "routes"},
			{unix.RTM_GETRULE, ruleHeader, &r.rules, "routing rules"},
		} {
			header := make([]byte, kind.fixed)
			header[0] = family
			messages, err := dump(conn, kind.get, header)
			if err != nil {
				return r, fmt.Errorf("list %s: %w", kind.name, err)
			}
			for _, m := range messages {
				o, err := parse(m, kind.fixed)
				if err != nil {
					return r, fmt.Errorf("list %s: %w", kind.name, err)
				}
				*kind.into = append(*kind.into, o)
			}
		}
	}
	return r, nil
}

// write makes the copy; what is refused is left out and said.
func (r routing) write(ctx context.Context, conn *netlink.Conn) (notes []string, err error) {
	for _, o := range r.addresses {
		o.keep(unix.IFA_ADDRESS, unix.IFA_LOCAL, unix.IFA_LABEL, unix.IFA_BROADCAST, unix.IFA_RT_PRIORITY)
		o.fixed[2] = 0
		o.attributes = append(o.attributes, number(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_NOPREFIXROUTE))
		if err := request(conn, unix.RTM_NEWADDR, netlink.Create|netlink.Excl, o); err != nil && !isThere(err) {
			return nil, fmt.Errorf("copy an address of device %d: %w", binary.NativeEndian.Uint32(o.fixed[4:]), err)
		}
	}
	if err := r.awaitLocal(ctx, conn); err != nil {
		return nil, err
	}
	if err := r.writeRules(conn); err != nil {
		return nil, err
	}
	// Some routes need others, so they are tried as long as one more is taken.
	left := slices.DeleteFunc(slices.Clone(r.routes), func(o object) bool { return kernelMakes(o) })
	var refused error
	for {
		var again []object
		for _, o := range left {
			if err := request(conn, unix.RTM_NEWROUTE, routeFlags(o), wanted(o)); err != nil && !isThere(err) {
				again, refused = append(again, o), err
			}
		}
		if len(again) == 0 || len(again) == len(left) {
			left = again
			break
		}
		left = again
	}
	if len(left) > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d routes could not be copied: %v", len(left), len(r.routes), refused))
	}
	return notes, nil
}

// awaitLocal waits until the copy takes packets to its IPv6 addresses for its own: the
// kernel makes their routes on a work queue (addrconf_dad_start in net/ipv6/addrconf.c).
func (r routing) awaitLocal(ctx context.Context, conn *netlink.Conn) error {
	addresses := map[string]bool{}
	for _, o := range r.addresses {
		for _, kind := range []uint16{unix.IFA_ADDRESS, unix.IFA_LOCAL} {
			address, _ := o.bytes(kind)
			addresses[string(address)] = true
		}
	}
	missing := map[string]bool{}
	for _, o := range r.routes {
		if to, _ := o.bytes(unix.RTA_DST); kernelMakes(o) && o.fixed[7] == unix.RTN_LOCAL && addresses[string(to)] {
			missing[string(to)] = true
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(step) {
		have, err := readRouting(conn)
		if err != nil {
			return err
		}
		for _, o := range have.routes {
			if to, _ := o.bytes(unix.RTA_DST); o.fixed[7] == unix.RTN_LOCAL {
				delete(missing, string(to))
			}
		}
		if len(missing) == 0 {
			return settled(conn)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d IPv6 addresses of the copy got no local route", len(missing))
		}
	}
}

// kernelMakes says of routes that they come by themselves, or are no routes.
func kernelMakes(o object) bool {
	flags := binary.NativeEndian.Uint32(o.fixed[8:])
	kind := o.fixed[7]
	if o.fixed[0] == unix.AF_INET6 && (kind == unix.RTN_ANYCAST || kind == unix.RTN_MULTICAST || kind == unix.RTN_LOCAL && o.fixed[5] == unix.RTPROT_KERNEL) {
		return true
	}
	return flags&unix.RTM_F_CLONED != 0
}

func routeFlags(o object) netlink.HeaderFlags {
	if o.fixed[0] == unix.AF_INET {
		return netlink.Create | netlink.Append
	}
	return netlink.Create
}

// wanted is a route without what the kernel says of its present state.
func wanted(o object) object {
	o.fixed = slices.Clone(o.fixed)
	binary.NativeEndian.PutUint32(o.fixed[8:], binary.NativeEndian.Uint32(o.fixed[8:])&nextHopFlagsKept)
	o.attributes = slices.DeleteFunc(slices.Clone(o.attributes), func(a netlink.Attribute) bool {
		return kindOf(a) == routeCacheInfo || kindOf(a) == routeNextHopID
	})
	if hops, there := o.bytes(routeNextHops); there {
		hops = slices.Clone(hops)
		for rest := hops; len(rest) >= nextHopHeader; {
			size := int(binary.NativeEndian.Uint16(rest))
			if size < nextHopHeader {
				break
			}
			rest[2] &= nextHopFlagsKept
			rest = rest[min((size+3)&^3, len(rest)):]
		}
		o.set(routeNextHops, hops)
	}
	return o
}

// writeRules adds the rules that a new namespace does not have, and deletes those that
// only it has.
func (r routing) writeRules(conn *netlink.Conn) error {
	have, err := readRouting(conn)
	if err != nil {
		return err
	}
	for _, o := range r.rules {
		if slices.ContainsFunc(have.rules, func(h object) bool { return sameRule(h, o) }) {
			continue
		}
		if err := request(conn, unix.RTM_NEWRULE, netlink.Create|netlink.Excl, plainRule(o)); err != nil && !isThere(err) {
			return fmt.Errorf("copy a routing rule: %w", err)
		}
	}
	for _, h := range have.rules {
		if slices.ContainsFunc(r.rules, func(o object) bool { return sameRule(h, o) }) {
			continue
		}
		if err := request(conn, unix.RTM_DELRULE, 0, plainRule(h)); err != nil {
			return fmt.Errorf("copy the routing rules: delete one: %w", err)
		}
	}
	return nil
}

func plainRule(o object) object {
	o.fixed = slices.Clone(o.fixed)
	binary.NativeEndian.PutUint32(o.fixed[8:], binary.NativeEndian.Uint32(o.fixed[8:])&ruleInverted)
	return o
}

func sameRule(a, b object) bool {
	x, errX := plainRule(a).data()
	y, errY := plainRule(b).data()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
