package apply

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// otherTunnels are tunnels that the kernel carries without keys in a flow of its own,
// IPsec in UDP and by a device, and a tunnel in a tunnel. Few machines have all.
var otherTunnels = []tunnel{
	{
		name: "ipsec in UDP", needs: []testnet.Feature{ipsec}, outer: "17/4500",
		open: func(l *tunnelLab) {
			for _, side := range l.sides() {
				takeESP(l.t, side.in, netip.MustParseAddr(side.here))
			}
			l.ipsec("encap", "espinudp", "4500", "4500", "0.0.0.0")
		},
	},
	made(tunnel{name: "ipip", outer: "4"}, []string{"ipip"}, []string{"ip6tnl", "mode", "any"}),
	made(tunnel{name: "sit", outer: "41", family: "IPv4", inner6: true}, []string{"sit"}, nil),
	made(tunnel{name: "IPv6 in IPv6", outer: "41", family: "IPv6", inner6: true}, nil, []string{"ip6tnl", "mode", "any"}),
	made(tunnel{name: "geneve", outer: "17/6081"}, []string{"geneve", "id", "7"}, []string{"geneve", "id", "7"}),
	made(tunnel{name: "vti", outer: "50"}, []string{"vti", "key", "5"}, []string{"vti6", "key", "5"}),
	{
		name: "vxlan in tun", needs: []testnet.Feature{tunDevices, vxlan}, outer: "17/1194 17/4789", spoke: true,
		open: func(l *tunnelLab) {
			l.startTunnel("outer0 " + l.at(l.here, 1194))
			(&lab{l.t, l.client, l.dir}).startTunnel("outer0 " + l.at(l.there, 40000) + " " + l.at(l.here, 1194))
			between := [2]string{"10.9.0.1", "10.9.0.2"}
			for i, side := range l.sides() {
				l.address(side.in, "outer0", between[i])
				side.in.MustRun("ip", vxlanDevice(between[i], between[1-i])...)
				side.in.MustRun("ip", "link", "set", "tunnel0", "name", "tun0")
				l.device(side.in, side.inside)
			}
		},
	},
}

// made is a tunnel whose device "ip link" makes, of the kind of the outer family.
func made(k tunnel, kind4, kind6 []string) tunnel {
	args := func(six bool, here, there string) []string {
		kind := kind4
		if six {
			kind = kind6
		}
		out := slices.Concat([]string{"link", "add", "tun0", "type"}, kind, []string{"remote", there})
		if kind[0] == "geneve" { // it has no address of its own
			return out
		}
		return append(out, "local", here)
	}
	if kind4 != nil {
		k.needs = append(k.needs, testnet.Probed(k.name, func() error { return deviceOf(args(false, "192.0.2.1", "192.0.2.2")) }))
	}
	if kind6 != nil {
		k.needs = append(k.needs, testnet.Probed(k.name, func() error { return deviceOf(args(true, "2001:db8::1", "2001:db8::2")) }))
	}
	k.open = func(l *tunnelLab) {
		if k.name == "vti" {
			l.keyed("5")
		}
		for _, side := range l.sides() {
			side.in.MustRun("ip", args(l.six, side.here, side.there)...)
			l.device(side.in, side.inside)
		}
	}
	return k
}

// keyed makes the states and policies of a vti device, which finds its own by a key.
func (l *tunnelLab) keyed(key string) {
	l.t.Helper()
	for _, side := range l.sides() {
		l.states(side, nil)
		for _, way := range [][]string{{side.here, side.there, "out"}, {side.there, side.here, "in"}} {
			side.in.MustRun("ip", "xfrm", "policy", "add", "src", "0.0.0.0/0", "dst", "0.0.0.0/0", "dir", way[2], "mark", key, "mask", "0xffffffff",
				"tmpl", "src", way[0], "dst", way[1], "proto", "esp", "reqid", "1", "mode", "tunnel")
		}
	}
}

// takeESP opens the socket by which a host takes in ESP inside of UDP, as a daemon of
// IKE does (UDP_ENCAP_ESPINUDP of linux/udp.h).
func takeESP(t testing.TB, in *testnet.Namespace, at netip.Addr) {
	t.Helper()
	const udpEncap, espInUDP = 100, 2
	err := in.Do(func() error {
		family := unix.AF_INET
		var to unix.Sockaddr = &unix.SockaddrInet4{Port: 4500}
		if at.Is6() {
			family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: 4500}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, udpEncap, espInUDP); err != nil {
			return err
		}
		return unix.Bind(fd, to)
	})
	if err != nil {
		t.Fatal(err)
	}
}
