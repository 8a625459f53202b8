package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/sorting"
)

// cableIndex is added to the index of a device for that of its other end: the kernel
// reports a carrier at once only where the two differ (linkwatch_urgent_event in
// net/core/link_watch.c).
const cableIndex = 1 << 24

const (
	peerInfo     = 1 // VETH_INFO_PEER
	linkHeader   = unix.SizeofIfInfomsg
	ethernetSize = 6
)

// Link is one device of the source.
type Link struct {
	Name   string
	Index  int
	Kind   string // IFLA_INFO_KIND, "" where the driver names none
	Up     bool
	Master int // index of the device that it belongs to, 0 is none
	MAC    net.HardwareAddr
	// XDP says that a program looks at packets before everything that is copied.
	XDP bool

	running bool // it carries packets
	mtu     uint32
	table   uint32 // of a vrf
}

// readLinks lists the devices of the calling thread's namespace by their index.
func readLinks(conn *netlink.Conn) ([]Link, error) {
	messages, err := dump(conn, unix.RTM_GETLINK, make([]byte, linkHeader))
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	var links []Link
	for _, m := range messages {
		o, err := parse(m, linkHeader)
		if err != nil {
			return nil, fmt.Errorf("list network devices: %w", err)
		}
		l := Link{
			Name:    o.text(unix.IFLA_IFNAME),
			Index:   int(int32(binary.NativeEndian.Uint32(o.fixed[4:]))), //nolint:gosec // the kernel's own sign
			running: binary.NativeEndian.Uint32(o.fixed[8:])&unix.IFF_RUNNING != 0,
			Up:      binary.NativeEndian.Uint32(o.fixed[8:])&unix.IFF_UP != 0,
		}
		if master, _ := o.bytes(unix.IFLA_MASTER); len(master) == 4 {
			l.Master = int(binary.NativeEndian.Uint32(master))
		}
		if mtu, _ := o.bytes(unix.IFLA_MTU); len(mtu) == 4 {
			l.mtu = binary.NativeEndian.Uint32(mtu)
		}
		if mac, _ := o.bytes(unix.IFLA_ADDRESS); len(mac) == ethernetSize {
			l.MAC = slices.Clone(mac)
		}
		if xdp, there := o.nested(unix.IFLA_XDP); there {
			attached, _ := xdp.bytes(unix.IFLA_XDP_ATTACHED)
			l.XDP = len(attached) == 1 && attached[0] != 0
		}
		if info, there := o.nested(unix.IFLA_LINKINFO); there {
			l.Kind = info.text(unix.IFLA_INFO_KIND)
			data, _ := info.nested(unix.IFLA_INFO_DATA)
			if table, _ := data.bytes(unix.IFLA_VRF_TABLE); l.Kind == "vrf" && len(table) == 4 {
				l.table = binary.NativeEndian.Uint32(table)
			}
		}
		links = append(links, l)
	}
	sorting.By(links, func(a, b Link) int { return a.Index - b.Index })
	return links, nil
}

func (o object) nested(kind uint16) (object, bool) {
	data, there := o.bytes(kind)
	if !there {
		return object{}, false
	}
	attributes, err := netlink.UnmarshalAttributes(data)
	return object{attributes: attributes}, err == nil
}

func linkMessage(index int, flags, change uint32) []byte {
	h := make([]byte, linkHeader)
	binary.NativeEndian.PutUint32(h[4:], uint32(index)) //nolint:gosec // positive
	binary.NativeEndian.PutUint32(h[8:], flags)
	binary.NativeEndian.PutUint32(h[12:], change)
	return h
}

// makeLink makes the copy of a device; its other end goes into the namespace of the given
// file. Both are down.
func makeLink(conn *netlink.Conn, l Link, cables int) error {
	if l.Name == loopback {
		return nil
	}
	o := object{linkMessage(l.Index, 0, 0), []netlink.Attribute{word(unix.IFLA_IFNAME, l.Name)}}
	if l.mtu != 0 && l.mtu <= 65535 {
		o.attributes = append(o.attributes, number(unix.IFLA_MTU, l.mtu))
	}
	if len(l.MAC) == ethernetSize && l.MAC[0]&1 == 0 && !slices.Equal(l.MAC, make(net.HardwareAddr, ethernetSize)) {
		o.attributes = append(o.attributes, netlink.Attribute{Type: unix.IFLA_ADDRESS, Data: l.MAC})
	}
	var data netlink.Attribute
	kind := "veth"
	if l.Kind == "vrf" {
		kind, data = "vrf", within(unix.IFLA_INFO_DATA, number(unix.IFLA_VRF_TABLE, l.table))
	} else {
		other := object{linkMessage(l.Index+cableIndex, 0, 0), []netlink.Attribute{
			word(unix.IFLA_IFNAME, cableName(l.Index)),
			number(unix.IFLA_NET_NS_FD, uint32(cables)), //nolint:gosec // a file
			number(unix.IFLA_MTU, 65535),
		}}
		body, err := other.data()
		if err != nil {
			return err
		}
		data = within(unix.IFLA_INFO_DATA, netlink.Attribute{Type: peerInfo, Data: body})
	}
	o.attributes = append(o.attributes, within(unix.IFLA_LINKINFO, word(unix.IFLA_INFO_KIND, kind), data))
	if err := request(conn, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, o); err != nil {
		return fmt.Errorf("copy network device %s as %s: %w", l.Name, kind, err)
	}
	return nil
}

const loopback = "lo"

// cableName is the name of the other end of a device.
func cableName(index int) string { return fmt.Sprintf("c%d", index) }

// raiseCables sets up the other ends, in whose namespace the thread is.
func raiseCables(links []Link) error {
	conn, err := dialRoute()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, l := range links {
		if l.Name == loopback || l.Kind == "vrf" {
			continue
		}
		const flags = unix.IFF_UP | unix.IFF_NOARP
		if err := request(conn, unix.RTM_NEWLINK, 0, object{fixed: linkMessage(l.Index+cableIndex, flags, flags)}); err != nil {
			return fmt.Errorf("set up the other end of the copy of network device %s: %w", l.Name, err)
		}
	}
	return nil
}

// raise sets the copy of a device up as the device is.
func raise(conn *netlink.Conn, l Link, links []Link) error {
	flags := uint32(0)
	if l.Up {
		flags = unix.IFF_UP
	}
	o := object{fixed: linkMessage(l.Index, flags|unix.IFF_NOARP, unix.IFF_UP|unix.IFF_NOARP)}
	if l.Name == loopback || l.Kind == "vrf" {
		o.fixed = linkMessage(l.Index, flags, unix.IFF_UP)
	}
	if slices.ContainsFunc(links, func(m Link) bool { return m.Index == l.Master && m.Kind == "vrf" }) {
		o.attributes = append(o.attributes, number(unix.IFLA_MASTER, uint32(l.Master))) //nolint:gosec // positive
	}
	if err := request(conn, unix.RTM_NEWLINK, 0, o); err != nil {
		return fmt.Errorf("set up the copy of network device %s: %w", l.Name, err)
	}
	return nil
}

// What the kernel does a moment later is asked for at each step.
const (
	patience = 30 * time.Second
	step     = time.Millisecond
)

// awaitCarrier waits until devices of the calling thread's namespace send and receive,
// which they do when the kernel has worked off that they have a carrier
// (net/core/link_watch.c).
func awaitCarrier(ctx context.Context, wanted func(Link) bool) error {
	conn, err := dialRoute()
	if err != nil {
		return err
	}
	defer conn.Close()
	for deadline := time.Now().Add(patience); ; time.Sleep(step) {
		links, err := readLinks(conn)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(links, func(l Link) bool { return wanted(l) && !l.running })
		if i < 0 {
			return settled(conn) // the state is set a little before the queue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the copy of network device %s got no carrier", links[i].Name)
		}
	}
}

// settled waits for the lock under which the kernel does what was begun, by a message
// that changes nothing.
func settled(conn *netlink.Conn) error {
	return request(conn, unix.RTM_NEWLINK, 0, object{fixed: linkMessage(1, 0, 0)})
}

// request sends one message and waits for the kernel's word.
func request(conn *netlink.Conn, kind uint16, flags netlink.HeaderFlags, o object) error {
	data, err := o.data()
	if err != nil {
		return err
	}
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Acknowledge | flags}, Data: data,
	})
	return err
}

func dialRoute() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	_ = conn.SetReadBuffer(4 << 20)
	_ = conn.SetOption(netlink.ExtendedAcknowledge, true)
	return conn, nil
}

func isThere(err error) bool { return errors.Is(err, unix.EEXIST) }
