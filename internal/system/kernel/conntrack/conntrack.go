// Package conntrack lists, counts and deletes the entries of the connection
// tracking table of the network namespace of the calling thread, over
// ctnetlink. apply calls it, to cut flows that a policy refuses.
package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/sysctl"
)

// Tuple is one direction of a connection.
type Tuple struct {
	Source, Destination         netip.Addr
	SourcePort, DestinationPort uint16 // zero for protocols without ports
}

// Turned is the tuple the other way round: of an answer, where nothing is rewritten.
func (t Tuple) Turned() Tuple {
	return Tuple{Source: t.Destination, Destination: t.Source, SourcePort: t.DestinationPort, DestinationPort: t.SourcePort}
}

// Entry is one tracked connection.
type Entry struct {
	Family   int // 4 or 6
	Protocol uint8
	Original Tuple
	Reply    Tuple // what an answer looks like; not the mirror of Original behind NAT
	Mark     uint32
	Timeout  uint32 // seconds
	Packets  uint64 // both directions; zero unless net.netfilter.nf_conntrack_acct is set
	Bytes    uint64
	// Ended says of TCP that both sides have closed it or one has reset it: the
	// entry waits for late packets.
	Ended bool
}

// States of TCP from which on a connection has ended, enum tcp_conntrack of
// include/uapi/linux/netfilter/nf_conntrack_tcp.h.
const (
	lastACK = 6
	closed  = 8 // 7 is TIME_WAIT
)

var families = []netlink.InetFamily{unix.AF_INET, unix.AF_INET6}

// A table that changes while it is listed is asked again, so often at most;
// then what came is given, since a busy table never holds still.
const dumpTries = 3

// List gives the entries of both families. On a busy host some may be missing
// that came or went meanwhile.
func List() ([]Entry, error) {
	var out []Entry
	for _, family := range families {
		var flows []*netlink.ConntrackFlow
		var err error
		for range dumpTries {
			flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if !errors.Is(err, netlink.ErrDumpInterrupted) {
				break
			}
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list the connection table: %w", err)
		}
		for _, f := range flows {
			out = append(out, entry(f))
		}
	}
	return out, nil
}

// Delete removes the entries that match accepts and says how many there were.
// Their next packet starts anew, and is judged by the rules. An empty table is
// not listed: the kernel walks the buckets of the whole machine for that, 10 ms
// for a quarter of a million.
func Delete(match func(Entry) bool) (int, error) {
	if n, err := Count(); err == nil && n == 0 {
		return 0, nil
	}
	total := 0
	for _, family := range families {
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter(match))
		total += int(n)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return total, fmt.Errorf("delete from the connection table: %w", err)
		}
	}
	return total, nil
}

// Count is how many entries the table holds; zero where connection tracking is
// not loaded.
func Count() (uint64, error) {
	text, err := sysctl.Read("net.netfilter.nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read sysctl net.netfilter.nf_conntrack_count: %w", err)
	}
	return n, nil
}

type filter func(Entry) bool

func (f filter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return f(entry(flow)) }

func entry(f *netlink.ConntrackFlow) Entry {
	e := Entry{
		Family: 4, Protocol: f.Forward.Protocol, Mark: f.Mark, Timeout: f.TimeOut,
		Original: tuple(f.Forward), Reply: tuple(f.Reverse),
		Packets: f.Forward.Packets + f.Reverse.Packets,
		Bytes:   f.Forward.Bytes + f.Reverse.Bytes,
	}
	if f.FamilyType == unix.AF_INET6 {
		e.Family = 6
	}
	if tcp, is := f.ProtoInfo.(*netlink.ProtoInfoTCP); is {
		e.Ended = tcp.State >= lastACK && tcp.State <= closed
	}
	return e
}

func tuple(t netlink.IPTuple) Tuple {
	return Tuple{Source: addr(t.SrcIP), Destination: addr(t.DstIP), SourcePort: t.SrcPort, DestinationPort: t.DstPort}
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
