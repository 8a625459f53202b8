// Package attached lists what decides about packets in the network namespace of the
// calling thread beside the chains of nf_tables and iptables: BPF programs at XDP, tcx,
// netkit and netfilter hooks, filters of tc, and services of IPVS. engine and apply
// call it, since such a thing may pass all chains of a policy; host takes it into its facts. It changes nothing.
package attached

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kind is what a thing is.
type Kind string

// Kinds.
const (
	XDP       Kind = "xdp"       // a BPF program at a device's driver
	TC        Kind = "tc"        // a filter of traffic control
	TCX       Kind = "tcx"       // a BPF program at a device, since Linux 6.6
	Netkit    Kind = "netkit"    // a BPF program of a netkit device
	Netfilter Kind = "netfilter" // a BPF program at a netfilter hook, since Linux 6.4
	Function  Kind = "function"  // a kernel module's own function at a netfilter hook
	IPVS      Kind = "ipvs"      // a service of the load balancer
)

// Thing is one of them.
type Thing struct {
	Kind     Kind   `json:"kind"`
	Device   string `json:"device,omitempty"`
	Hook     string `json:"hook,omitempty"` // "ingress", "egress", "input", …
	Family   string `json:"family,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Name is that of the program, the kind of the filter, the service or the function.
	Name    string `json:"name,omitempty"`
	Program uint32 `json:"program,omitempty"` // id of a BPF program
	// Anywhere: the kernel does not tell of which network namespace it is.
	Anywhere bool `json:"any-namespace,omitempty"`
}

// Opens says whether packets that a policy refuses may pass by it: a redirect passes all
// hooks, and IPVS sends by output what came in by input. A program at a netfilter hook
// can drop and nothing else: the kernel takes no other verdict of it, and gives it the
// packet to read (nf_is_valid_access of net/netfilter/nf_bpf_link.c).
func (t Thing) Opens() bool {
	switch t.Kind {
	case XDP, TC, TCX, Netkit, IPVS:
		return true
	case Netfilter, Function:
	}
	return false
}

// List gives what there is, and an error for each part that could not be read; the
// others are given anyway.
func List() ([]Thing, []error) {
	var l list
	l.devices()
	l.hooks()
	l.ipvs()
	return l.things, l.errs
}

// whole asks again where the kernel changed under a dump.
func whole[T any](ask func() (T, error)) (got T, err error) {
	for range 5 {
		if got, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return got, err
}

type list struct {
	things []Thing
	errs   []error
}

func (l *list) failed(what string, err error) {
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", what, err))
	}
}

// missing says that the kernel has no such thing at all.
func missing(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

func (l *list) devices() {
	links, err := whole(netlink.LinkList)
	if err != nil {
		l.failed("network devices", err)
		return
	}
	for _, link := range links {
		a := link.Attrs()
		if a.Xdp != nil && a.Xdp.Attached {
			l.program(Thing{Kind: XDP, Device: a.Name, Hook: "ingress"}, a.Xdp.ProgId)
		}
		l.attached(TCX, a, "ingress", unix.BPF_TCX_INGRESS)
		l.attached(TCX, a, "egress", unix.BPF_TCX_EGRESS)
		if link.Type() == "netkit" {
			l.attached(Netkit, a, "primary", netkitPrimary)
			l.attached(Netkit, a, "peer", netkitPeer)
		}
		l.filters(link)
	}
}

func (l *list) attached(kind Kind, of *netlink.LinkAttrs, hook string, place int) {
	programs, err := programsAt(of.Index, place)
	switch {
	case missing(err) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist): // an old kernel, a user namespace, or a device that has gone
		return
	case err != nil:
		l.failed(fmt.Sprintf("%s programs of %s", kind, of.Name), err)
		return
	}
	for _, id := range programs {
		l.program(Thing{Kind: kind, Device: of.Name, Hook: hook}, id)
	}
}

// program adds a thing that a BPF program is, with its name where it can be read.
func (l *list) program(t Thing, id uint32) {
	t.Program, t.Name = id, programName(id)
	l.things = append(l.things, t)
}

// blockLink stands for a block of filters that devices share (TCM_IFINDEX_MAGIC_BLOCK).
func blockLink() netlink.Link { return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: -1}} }

// filters adds those of a device's ingress and egress. In other places of traffic control
// a filter chooses a queue, unless it is a program or has actions.
func (l *list) filters(link netlink.Link) {
	name := link.Attrs().Name
	disciplines, err := whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		l.failed("queueing disciplines of "+name, err)
		return
	}
	for _, q := range disciplines {
		a := q.Attrs()
		switch kind := q.Type(); {
		case kind == "ingress" || kind == "clsact":
			l.filtersAt(link, name, "ingress", netlink.HANDLE_MIN_INGRESS, false)
			if kind == "clsact" {
				l.filtersAt(link, name, "egress", netlink.HANDLE_MIN_EGRESS, false)
			}
			if a.IngressBlock != nil {
				l.filtersAt(blockLink(), name, "ingress", *a.IngressBlock, false)
			}
		case a.Handle != 0:
			l.filtersAt(link, name, "egress", a.Handle, true)
		}
	}
}

func (l *list) filtersAt(link netlink.Link, device, hook string, parent uint32, queueing bool) {
	found, err := whole(func() ([]netlink.Filter, error) { return netlink.FilterList(link, parent) })
	if err != nil {
		if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EOPNOTSUPP) { // a device that has gone, a kernel without tc
			l.failed("filters of "+device, err)
		}
		return
	}
	for _, f := range found {
		if !queueing || acts(f) {
			t := Thing{Kind: TC, Device: device, Hook: hook, Name: f.Type(), Priority: int(f.Attrs().Priority)}
			if !slices.Contains(l.things, t) { // a filter has several entries, one for its table
				l.things = append(l.things, t)
			}
		}
	}
}

// acts says whether a filter may do more than choose a queue; of a kind whose actions
// are not read, it may.
func acts(f netlink.Filter) bool {
	switch f := f.(type) {
	case *netlink.U32:
		return len(f.Actions) > 0 || f.RedirIndex > 0
	case *netlink.MatchAll:
		return len(f.Actions) > 0
	case *netlink.Flower:
		return len(f.Actions) > 0
	case *netlink.FwFilter:
		return false
	}
	return true
}

// ipvs adds the services of the load balancer, from /proc/net/ip_vs: three lines of
// head, then a line for each service, and one that begins with an arrow for each of its
// servers.
func (l *list) ipvs() {
	text, err := os.ReadFile("/proc/thread-self/net/ip_vs")
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.failed("services of IPVS", err)
		}
		return
	}
	l.things = append(l.things, services(text)...)
}

func services(text []byte) (out []Thing) {
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || !slices.Contains([]string{"TCP", "UDP", "SCTP", "FWM"}, fields[0]) {
			continue
		}
		name := fields[0] + " " + fields[1]
		if address, port, ok := strings.Cut(fields[1], ":"); ok && len(address) == 8 { // hexadecimal: ip_vs_info_seq_show
			a, err1 := strconv.ParseUint(address, 16, 32)
			n, err2 := strconv.ParseUint(port, 16, 16)
			if err1 == nil && err2 == nil {
				to := netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(a)))), uint16(n))
				name = fields[0] + " " + to.String()
			}
		}
		out = append(out, Thing{Kind: IPVS, Hook: "input", Name: name})
	}
	return out
}
