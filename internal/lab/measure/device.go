package measure

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"sluice/internal/lab/testnet"
)

// Device is one side of a lab.
type Device struct {
	Name      string
	Addresses []netip.Prefix // of the lab on it, with the length of their network
	// Networks lie behind it: packets to them leave by it, through a router.
	Networks []netip.Prefix
}

// port is a device of a lab: one end of a veth pair, whose other end drops what it
// gets.
type port struct {
	*testnet.Port
	name  string
	index uint32
	ready link.Link
	ring  *ring // made by the first injection that needs it
}

// Link-layer addresses: of every device of every lab, and of every other end, so that
// one frame fits all.
var (
	macHere = net.HardwareAddr{0x02, 0x51, 0xfe, 0, 0, 0x01}
	macFar  = net.HardwareAddr{0x02, 0x51, 0xfe, 0, 0, 0x02}
)

// routers are the next hops behind a device. They are on no network of it.
var (
	router4 = netip.MustParseAddr("169.254.254.254")
	router6 = netip.MustParseAddr("fe80::fe")
)

func (l *Lab) join(i int, d Device) *port {
	here, _ := l.net.Join(testnet.End{In: l.Namespace, Device: d.Name}, testnet.End{In: l.far, Device: fmt.Sprintf("far%d", i)})
	l.far.Sysctl(fmt.Sprintf("net.ipv6.conf.far%d.disable_ipv6", i), "1")
	return &port{Port: here, name: d.Name}
}

// route gives the devices their addresses and the networks behind them. No route
// comes with an address: a neighbour is always the router, whose link-layer address
// is known.
func (l *Lab) route(devices []Device) error {
	links := l.Namespace.Links()
	for i, d := range devices {
		p := l.ports[i]
		found, err := links.LinkByName(d.Name)
		if err != nil {
			return err
		}
		p.index = uint32(found.Attrs().Index)
		if err := p.setMACs(l); err != nil {
			return err
		}
		networks := d.Networks
		if i == 0 {
			networks = append(prefixes("0.0.0.0/0", "::/0"), networks...)
		}
		if err := l.net.Try(func() { // a new link-layer address makes the device forget its neighbours
			p.Neighbor(router4.String(), macFar)
			p.Neighbor(router6.String(), macFar)
			for _, a := range d.Addresses {
				p.AddressAlone(a)
			}
			for _, n := range networks {
				via := router4
				if n.Addr().Is6() {
					via = router6
				}
				p.RouteBy(via, n)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func (p *port) setMACs(l *Lab) error {
	for _, end := range []struct {
		of  *testnet.Port
		in  *testnet.Namespace
		mac net.HardwareAddr
	}{{p.Port, l.Namespace, macHere}, {p.Peer, l.far, macFar}} {
		found, err := end.in.Links().LinkByName(end.of.Device)
		if err == nil {
			err = end.in.Links().LinkSetHardwareAddr(found, end.mac)
		}
		if err != nil {
			return fmt.Errorf("set the link-layer address of %s: %w", end.of.Device, err)
		}
		end.of.MAC = end.mac
	}
	return nil
}

// receive makes the device ready for frames of a test run: a veth has a receive
// queue that XDP knows only while a program is attached (veth_enable_xdp in
// drivers/net/veth.c).
func (p *port) receive(l *Lab) error {
	if Available() != ByLiveFrames {
		return nil
	}
	return l.Namespace.Do(func() error {
		pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "pass", Type: ebpf.XDP, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer func() { _ = pass.Close() }()
		p.ready, err = link.AttachXDP(link.XDPOptions{Program: pass, Interface: int(p.index), Flags: link.XDPDriverMode})
		if err == nil {
			l.net.OnClose(p.ready.Close)
		}
		return err
	})
}
