package measure

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"sluice/internal/testnet"
)

const (
	device  = "eth0"
	ownIPv4 = "198.51.100.1"
	ownIPv6 = "2001:db8:0:1::1"
)

// Lab is one host that packets arrive at. Its device is eth0, the default route
// of both families leaves by it, and its addresses are those of Target. It lives
// as long as its net.
type Lab struct {
	Namespace *testnet.Namespace
	net       *testnet.Net
	port      *testnet.Port
	frame     []byte // the Ethernet header of what arrives
	index     uint32 // of the device
	ready     link.Link
	survivors *counter
}

// NewLab makes a lab in a net. The label is a part of the namespace's name.
func NewLab(net *testnet.Net, label string) (*Lab, error) {
	l := &Lab{net: net}
	if err := net.Try(func() { l.setUp(net, label) }); err != nil {
		return nil, err
	}
	if err := l.receive(); err != nil {
		return nil, fmt.Errorf("make lab %s: %w", label, err)
	}
	var err error
	l.survivors, err = newCounter(l.Namespace)
	if err != nil {
		return nil, fmt.Errorf("make lab %s: %w", label, err)
	}
	return l, nil
}

// drain is what every lab has: what survived the rules ends here.
const drain = `table inet measure {
	counter survived { }
	chain input {
		type filter hook input priority 1000; policy drop;
		counter name survived
	}
}
`

func (l *Lab) setUp(net *testnet.Net, label string) {
	n := net.Namespace(label)
	l.Namespace = n
	// The far end sends nothing and hears nothing: it shares the namespace.
	here, far := net.Join(testnet.End{In: n, Device: device}, testnet.End{In: n, Device: "far0"})
	n.Sysctl("net.ipv6.conf.far0.disable_ipv6", "1")
	here.Address(ownIPv4+"/24", ownIPv6+"/64")
	l.port = here
	here.Neighbor("198.51.100.254", far.MAC)
	here.Neighbor("2001:db8:0:1::fe", far.MAC)
	n.Route("default4", "198.51.100.254")
	n.Route("default6", "2001:db8:0:1::fe")
	// Hardware checks checksums before conntrack would.
	_ = n.SetSysctl("net.netfilter.nf_conntrack_checksum", "0")
	n.Nft(drain)
	l.frame = append(append([]byte{}, here.MAC...), far.MAC...)
	l.frame = append(l.frame, 0, 0) // the type is the traffic's
}

// receive makes the device ready for frames of a test run: a veth has a receive
// queue that XDP knows only while a program is attached (veth_enable_xdp in
// drivers/net/veth.c).
func (l *Lab) receive() error {
	eth0, err := l.Namespace.Links().LinkByName(device)
	if err != nil {
		return err
	}
	l.index = uint32(eth0.Attrs().Index)
	return l.Namespace.Do(func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "pass", Type: ebpf.XDP, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer func() { _ = p.Close() }()
		l.ready, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: int(l.index), Flags: link.XDPDriverMode})
		return err
	})
}

// Nft loads rules into the lab with nft(8). Their base chains in the input hook
// come before priority 1000.
func (l *Lab) Nft(ruleset string) error {
	_, err := l.Namespace.RunInput(ruleset, "nft", "-f", "-")
	return err
}

// Own gives the lab another address.
func (l *Lab) Own(a netip.Addr) error {
	return l.net.Try(func() { l.port.Address(netip.PrefixFrom(a, a.BitLen()).String()) })
}

// Connect puts a TCP connection from a client to the lab into its connection
// table, established and assured, with conntrack(8). The rules that are there
// decide whether the kernel tracks anything in this namespace.
func (l *Lab) Connect(from netip.Addr, port uint16, to netip.AddrPort) error {
	// The entry knows no windows, so every segment has to be in them.
	if err := l.Namespace.SetSysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "1"); err != nil {
		return err
	}
	_, err := l.Namespace.Run("conntrack", "-I", "-p", "tcp", "-s", from.String(), "-d", to.Addr().String(),
		"--sport", fmt.Sprint(port), "--dport", fmt.Sprint(to.Port()),
		"--state", "ESTABLISHED", "-u", "SEEN_REPLY,ASSURED", "-t", "86400")
	return err
}
