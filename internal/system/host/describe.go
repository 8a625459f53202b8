package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/netns"
)

// Describe reads the facts of the host in the network namespace of the calling
// thread; a goroutine that has entered a namespace must be locked to it. Own is the ssh
// session of who asks, nil where it is none.
//
// It fails when the interfaces cannot be read, without which nothing can be
// said. What else cannot be read, for lack of rights or of a program, is named
// in Facts.Unread.
func Describe(ctx context.Context, own *SSHClient) (Facts, error) {
	f := Facts{Known: true}
	var err error
	if f.Interfaces, f.DefaultRoute, err = interfaces(); err != nil {
		return Facts{}, fmt.Errorf("describe the host: %w", err)
	}
	if f.Local, err = link.Local(); err != nil {
		f.unread("local routes", err)
	}
	f.Local = sorting.Unique(f.Local, netip.Prefix.Compare)
	if f.Namespace, err = netns.Name(); err != nil {
		f.unread("name of the network namespace", err)
	}
	f.readParameters()
	f.readForeign(ctx)
	gateways, err := link.Gateways()
	if err != nil {
		f.unread("routers of the default routes", err)
	}
	f.Gateways = sorting.Unique(gateways, netip.Addr.Compare)
	f.readResolvers()
	f.readSSHClients(own)
	f.readOuterFlows()
	f.readAskers()
	if err := ctx.Err(); err != nil {
		return Facts{}, fmt.Errorf("describe the host: %w", err)
	}
	return f, nil
}

// Sides reads the interfaces with their addresses and the default routes alone. The
// kernel sends all routes of the main table, so that a full one takes time: 120,000
// routes about 50 ms of processor.
func Sides() (Facts, error) {
	f := Facts{Known: true}
	var err error
	if f.Interfaces, f.DefaultRoute, err = interfaces(); err != nil {
		return Facts{}, fmt.Errorf("read interfaces and routes: %w", err)
	}
	return f, nil
}

func (f *Facts) unread(what string, err error) {
	f.Unread = append(f.Unread, what+": "+err.Error())
}

func interfaces() ([]Interface, []string, error) {
	links, err := link.List()
	if err != nil {
		return nil, nil, err
	}
	names, kinds := map[int]string{}, map[int]string{}
	for _, l := range links {
		names[l.Index], kinds[l.Index] = l.Name, l.Kind
	}
	var all []Interface
	for _, l := range links {
		i := Interface{Name: l.Name, Index: l.Index, Addresses: l.Addresses, Kind: l.Kind, Up: l.Up, MTU: l.MTU}
		switch i.VRFTable = l.VRFTable; kinds[l.Master] {
		case "bridge":
			i.Master = names[l.Master]
		case "vrf":
			i.VRF = names[l.Master]
		}
		i.Addresses = slices.SortedFunc(slices.Values(l.Addresses), netip.Prefix.Compare)
		if !slices.Equal(i.Addresses, l.Addresses) {
			i.Order = l.Addresses
		}
		all = append(all, i)
	}
	indices, err := link.DefaultRoutes()
	if err != nil {
		return nil, nil, err
	}
	var routes []string
	for _, index := range indices {
		if name := names[index]; name != "" {
			routes = append(routes, name)
		}
	}
	slices.Sort(routes)
	sorting.By(all, func(a, b Interface) int { return cmp.Compare(a.Name, b.Name) })
	return all, slices.Compact(routes), nil
}

// readParameters reads what the kernel shows below /proc; what is not there,
// such as connection tracking that is not loaded, stays zero.
func (f *Facts) readParameters() {
	if ends := strings.Fields(parameter("net/ipv4/ip_local_port_range")); len(ends) == 2 {
		from, err1 := strconv.ParseUint(ends[0], 10, 16)
		to, err2 := strconv.ParseUint(ends[1], 10, 16)
		if err1 == nil && err2 == nil {
			f.EphemeralFrom, f.EphemeralTo = uint16(from), uint16(to)
		}
	}
	f.readForwarding(os.DirFS("/proc/sys/net"))
	f.ConntrackMax = number("net/netfilter/nf_conntrack_max")
	f.ConntrackBuckets = number("net/netfilter/nf_conntrack_buckets")
	f.ConntrackCount = number("net/netfilter/nf_conntrack_count")
	var err error
	if f.MemoryBytes, err = Memory("MemTotal"); err != nil {
		f.unread("memory of the machine", err)
	}
}

// Memory is how many bytes /proc/meminfo says of the machine, 0 where it does not.
func Memory(what string) (uint64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == what+":" {
			kilobytes, _ := strconv.ParseUint(fields[1], 10, 64)
			return kilobytes * 1024, nil
		}
	}
	return 0, err
}

// readForwarding reads what happens to packets to addresses that the host has not. IPv4
// asks the device that a packet comes in by. IPv6 forwards by a device where all do, or
// since Linux 6.17 where it is forced to.
func (f *Facts) readForwarding(net fs.FS) {
	on := func(pattern string, optional bool) (is bool) {
		files, err := fs.Glob(net, pattern)
		if err == nil && len(files) == 0 && !optional {
			err = &fs.PathError{Op: "read", Path: pattern, Err: fs.ErrNotExist}
		}
		for _, file := range files {
			text, failed := fs.ReadFile(net, file)
			n, wrong := strconv.Atoi(strings.TrimSpace(string(text)))
			switch {
			case errors.Is(failed, fs.ErrNotExist): // a device that has gone
			case failed != nil || wrong != nil:
				err = cmp.Or(failed, wrong)
			case n != 0:
				is = true
			}
		}
		if err != nil {
			f.ForwardingUnread = true
			f.unread("parameters below /proc/sys/net", err)
		}
		return is
	}
	f.Forwarding4 = on("ipv4/ip_forward", false)
	f.Forwarding4 = on("ipv4/conf/*/forwarding", false) || f.Forwarding4
	f.NonLocalBind = on("ipv4/ip_nonlocal_bind", false)
	if _, err := fs.Stat(net, "ipv6"); errors.Is(err, fs.ErrNotExist) {
		return // the kernel has no IPv6
	}
	f.Forwarding6 = on("ipv6/conf/all/forwarding", false)
	f.Forwarding6 = on("ipv6/conf/*/force_forwarding", true) || f.Forwarding6
	f.NonLocalBind = on("ipv6/ip_nonlocal_bind", false) || f.NonLocalBind
}

func parameter(name string) string {
	text, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func number(name string) uint64 {
	n, err := strconv.ParseUint(parameter(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
