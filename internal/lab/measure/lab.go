package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os/exec"

	"sluice/internal/lab/testnet"
)

const (
	device  = "eth0"
	inner   = "eth1"
	ownIPv4 = "198.51.100.1"
	ownIPv6 = "2001:db8:0:1::1"
)

// Lab is one host that packets arrive at. The default route of both families
// leaves by its first device. It lives as long as its net.
type Lab struct {
	Namespace *testnet.Namespace
	net       *testnet.Net
	far       *testnet.Namespace // the other ends of its devices
	ports     []*port            // in the order of the devices
	drain     drain
}

// NewLab makes a lab with one device, eth0, and the addresses of Target. The label
// is a part of the namespace's name.
func NewLab(net *testnet.Net, label string) (*Lab, error) { return Build(net, label, outer()) }

// NewForwardLab makes a lab that forwards between eth0 and a second device, eth1,
// behind which the hosts of Behind are.
func NewForwardLab(net *testnet.Net, label string) (*Lab, error) {
	return Build(net, label, outer(), Device{
		Name:      inner,
		Addresses: prefixes("10.77.0.1/16", "2001:db8:77::1/48"),
		Networks:  prefixes("10.77.0.0/16", "2001:db8:77::/48"),
	})
}

// outer is the device that every lab has first, unless its maker says otherwise.
func outer() Device {
	return Device{Name: device, Addresses: prefixes(ownIPv4+"/24", ownIPv6+"/64")}
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// Build makes a lab with the given devices, one at the least; with several it
// forwards between them. The default route leaves by the first.
func Build(net *testnet.Net, label string, devices ...Device) (*Lab, error) {
	l := &Lab{net: net}
	failed := func(err error) (*Lab, error) { return nil, fmt.Errorf("make lab %s: %w", label, err) }
	if err := net.Try(func() { l.setUp(net, label, devices) }); err != nil {
		return failed(err)
	}
	if err := l.unsummed(); err != nil {
		return failed(err)
	}
	if err := l.route(devices); err != nil {
		return failed(err)
	}
	for _, p := range l.ports {
		if err := p.receive(l); err != nil {
			return failed(err)
		}
	}
	if err := l.drain.load(l); err != nil {
		return failed(err)
	}
	return l, nil
}

func (l *Lab) setUp(net *testnet.Net, label string, devices []Device) {
	l.Namespace, l.far = net.Namespace(label), net.Unnamed(label+"-far")
	for i, d := range devices {
		l.ports = append(l.ports, l.join(i, d))
	}
	if len(devices) > 1 {
		l.Namespace.Forward()
	}
}

// unsummed keeps connection tracking from checking sums, which hardware does before.
// A lab that is made before the module is there costs 300 instructions a packet
// more than those after it.
func (l *Lab) unsummed() error {
	const checks = "net.netfilter.nf_conntrack_checksum"
	err := l.Namespace.SetSysctl(checks, "0")
	if errors.Is(err, fs.ErrNotExist) {
		_ = exec.Command("modprobe", "nf_conntrack").Run() // the next line tells whether it helped
		err = l.Namespace.SetSysctl(checks, "0")
	}
	return err
}

// port finds a device; "" is the first.
func (l *Lab) port(name string) (*port, error) {
	for _, p := range l.ports {
		if name == "" || p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("lab %s has no device %s", l.Namespace.Label(), name)
}

// Nft loads rules into the lab with nft(8). Their base chains in the hooks input
// and postrouting come before priority 1000.
func (l *Lab) Nft(ruleset string) error {
	_, err := l.Namespace.RunInput(ruleset, "nft", "-f", "-")
	return err
}

// Own gives the lab another address, on its first device.
func (l *Lab) Own(a netip.Addr) error {
	return l.net.Try(func() { l.ports[0].Address(netip.PrefixFrom(a, a.BitLen()).String()) })
}
