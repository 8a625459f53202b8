package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/process"
	"sluice/internal/system/kernel/socket"
	"sluice/internal/system/kernel/sysctl"
	"sluice/internal/system/kernel/wireguard"
	"sluice/internal/system/kernel/xfrm"
)

// follow finds what carries a flow that comes in by a device.
func (f *outerFinder) follow(inner flow, device string) {
	d, known := f.devices[device]
	if known && d.Kind != "xfrm" {
		f.ipsec("IPsec", inner, 0)
	}
	if known {
		f.device(inner, d, 0)
	}
}

// maxLayers bounds how many devices are made on each other.
const maxLayers = 16

func (f *outerFinder) device(inner flow, d link.Device, layer int) {
	switch {
	case layer == maxLayers:
		f.unknown(d.Name, "too many devices are made on each other")
	case slices.Contains(plain, d.Kind):
	case slices.Contains(layered, d.Kind):
		for _, below := range f.below(inner, d) {
			f.device(inner, below, layer+1)
		}
	case d.Kind == "xfrm":
		if !f.ipsec(d.Name, inner, d.ID) {
			f.unknown(d.Name, "no IPsec policy is about its packets")
		}
	case d.Kind == "ppp":
		f.ppp(d)
	case d.Ends != nil:
		f.ends(inner, d)
	default:
		// A program may carry WireGuard by a tun device; it is asked first.
		if !f.throughWireGuard(inner, d) {
			f.program(d)
		}
	}
}

// below is the devices that packets of a layered one may have come in by.
func (f *outerFinder) below(inner flow, d link.Device) []link.Device {
	var ports []link.Device
	for _, name := range slices.Sorted(maps.Keys(f.devices)) {
		below := f.devices[name]
		if below.Index == d.Parent && d.Parent != 0 || below.Master == d.Index && d.Kind != "vrf" {
			ports = append(ports, below)
		}
	}
	if d.Kind != "bridge" || len(ports) < 2 {
		return ports
	}
	if port, err := link.PortOf(d.Index, link.RouterToward(inner.answer(0))); err == nil && port != 0 {
		return slices.DeleteFunc(ports, func(p link.Device) bool { return p.Index != port })
	}
	return ports
}

// throughWireGuard asks WireGuard which peer the inner packets come from; it drops
// them from any other.
func (f *outerFinder) throughWireGuard(inner flow, d link.Device) bool {
	f.once("WireGuard", f.readWireGuard)
	i := slices.IndexFunc(f.wireguard, func(w wireguard.Device) bool { return w.Name == d.Name })
	if i < 0 {
		return false
	}
	w := f.wireguard[i]
	p, is := w.PeerOf(inner.remote.Addr())
	if !is || !p.Endpoint.IsValid() {
		f.unknown(d.Name, "WireGuard knows no endpoint of "+inner.remote.Addr().String())
		return true
	}
	begins := FromOutside
	if p.Keepalive > 0 {
		begins = FromEither
	}
	f.add(d.Name, flow{protocolUDP, p.Endpoint, netip.AddrPortFrom(netip.Addr{}, w.Port)}, begins, w.Mark)
	return true
}

// ipsec notes the outer flows by which the policies want the inner packets to come.
func (f *outerFinder) ipsec(tunnel string, inner flow, id uint32) bool {
	for _, p := range f.policies {
		if p.Interface != id || !p.Matches(inner.remote, inner.local, inner.protocol) {
			continue
		}
		for _, t := range p.Templates {
			from, to := t.Source, t.Destination
			if !from.IsValid() {
				from, to = inner.remote.Addr(), inner.local.Addr()
			}
			f.secured(tunnel, from, to, t.Protocol, t.ReqID)
		}
		return true
	}
	return false
}

// secured notes the packets of IPsec between two ends, and of the program that
// agrees on its keys. An unspecified end is that of the state.
func (f *outerFinder) secured(tunnel string, from, to netip.Addr, protocol uint8, reqID int) {
	f.once("IPsec states", f.readStates)
	fits := func(s xfrm.State) bool {
		return (from == s.Source || from.IsUnspecified()) && (to == s.Destination || to.IsUnspecified()) &&
			(protocol == 0 || s.Protocol == protocol) && (reqID == 0 || s.ReqID == reqID)
	}
	i := slices.IndexFunc(f.states, fits)
	if i < 0 {
		f.unknown(tunnel, fmt.Sprintf("IPsec has no state from %s to %s", from, to))
		return
	}
	s := f.states[i]
	if s.Encapsulated {
		o := flow{protocolUDP, netip.AddrPortFrom(s.Source, s.SourcePort), netip.AddrPortFrom(s.Destination, s.Port)}
		f.add(tunnel, o, f.began(o, FromOutside), 0)
		return
	}
	f.add(tunnel, flow{s.Protocol, netip.AddrPortFrom(s.Source, 0), netip.AddrPortFrom(s.Destination, 0)}, FromOutside, 0)
	f.once("UDP sockets", f.readUDP)
	// Keys that a program agrees on are renewed (RFC 7296); those by hand are not.
	if slices.ContainsFunc(f.udp, func(k socket.Socket) bool { return k.Local.Port() == portIKE }) {
		o := flow{protocolUDP, netip.AddrPortFrom(s.Source, portIKE), netip.AddrPortFrom(s.Destination, portIKE)}
		f.add(tunnel, o, f.began(o, FromOutside), 0)
	}
}

const portIKE = 500

// ends notes the outer flow of a tunnel that the kernel carries without keys.
func (f *outerFinder) ends(inner flow, d link.Device) {
	e := d.Ends
	if e.Protocol == 0 && !e.Inner {
		from, to := e.Remote, e.Local
		if !from.IsValid() {
			from = netip.IPv6Unspecified()
		}
		if !to.IsValid() {
			to = netip.IPv6Unspecified()
		}
		f.secured(d.Name, from, to, 0, 0)
		return
	}
	o := flow{e.Protocol, netip.AddrPortFrom(e.Remote, 0), netip.AddrPortFrom(e.Local, e.Port)}
	if e.Inner {
		if o.protocol = protocolIPv6; inner.remote.Addr().Is4() {
			o.protocol = protocolIPv4
		}
	}
	// Nothing keeps such a tunnel alive: the other end may send at any time.
	f.add(d.Name, o, FromOutside, 0)
}

// ppp: what a program carries over IP is not known to the kernel; Ethernet is no IP.
func (f *outerFinder) ppp(d link.Device) {
	devices := 0
	for _, other := range f.devices {
		if other.Kind == d.Kind {
			devices++
		}
	}
	if sessions, err := link.PPPoE(); err != nil || sessions < devices {
		f.unknown(d.Name, "what carries PPP is not known")
	}
}

// machines are the beginnings of the names of programs that hold a tap device for
// a virtual machine, whose packets come from this host itself.
var machines = []string{"qemu", "kvm", "cloud-hyperv", "firecracker", "crosvm"}

// program notes the flows of the program that carries a tun or tap device.
func (f *outerFinder) program(d link.Device) {
	if d.Kind != "tun" && d.Kind != "tuntap" {
		f.unknown(d.Name, "nothing is known of tunnels of the kind "+d.Kind)
		return
	}
	holders, err := process.HoldersOf(d.Name)
	if err != nil || len(holders) == 0 {
		f.unknown(d.Name, "no process that can be seen holds it")
		return
	}
	before := len(f.out)
	for _, p := range holders {
		if slices.ContainsFunc(machines, func(m string) bool { return strings.HasPrefix(p.Name, m) }) {
			return
		}
		f.sockets(d.Name, process.Sockets(p.PID))
	}
	if len(f.out) == before && !f.carried(d.Name) {
		f.unknown(d.Name, fmt.Sprintf("%s (process %d), which holds it, has no socket to elsewhere", holders[0].Name, holders[0].PID))
	}
}

func (f *outerFinder) carried(tunnel string) bool {
	return slices.ContainsFunc(f.out, func(o OuterFlow) bool { return o.Peer == f.peer && o.Tunnel == tunnel })
}

// sockets notes the flows of sockets. Which of them carries a peer is not known, so
// each has to come through.
func (f *outerFinder) sockets(tunnel string, inodes map[uint32]bool) {
	f.once("own addresses", f.readOwn)
	f.once("UDP sockets", f.readUDP)
	f.once("TCP sockets", f.readTCP)
	elsewhere := func(a netip.Addr) bool { return a.IsValid() && !a.IsUnspecified() && !f.own(a) }
	for _, s := range f.udp {
		switch {
		case !inodes[s.Inode] || s.Local.Port() == 0 || s.Local.Addr().IsLoopback():
		case s.Remote.Port() != 0:
			if elsewhere(s.Remote.Addr()) {
				o := flow{protocolUDP, s.Remote, s.Local}
				f.add(tunnel, o, f.began(o, FromEither), 0)
			}
		default:
			f.unconnected(tunnel, s)
		}
	}
	for _, s := range f.tcp {
		if !inodes[s.Inode] || s.State != socket.Established || !elsewhere(s.Remote.Addr()) {
			continue
		}
		begins := FromHere
		if slices.ContainsFunc(f.tcp, func(l socket.Socket) bool {
			return l.State == socket.Listen && l.Local.Port() == s.Local.Port()
		}) {
			begins = FromOutside
		}
		f.add(tunnel, flow{protocolTCP, s.Remote, s.Local}, begins, 0)
	}
}

// unconnected notes who a socket of UDP speaks with, which the connection table
// alone knows; anybody where it does not.
func (f *outerFinder) unconnected(tunnel string, s socket.Socket) {
	f.once("connection table", f.readEntries)
	var alive, all []flow
	begins := map[flow]Begins{}
	for _, e := range f.entries {
		if e.Protocol != protocolUDP {
			continue
		}
		o, from := flow{}, Begins("")
		switch port := s.Local.Port(); {
		case e.Reply.SourcePort == port && f.own(e.Reply.Source):
			o, from = flow{protocolUDP, end(e.Original.Source, e.Original.SourcePort), end(e.Reply.Source, port)}, FromOutside
		case e.Original.SourcePort == port && f.own(e.Original.Source):
			o, from = flow{protocolUDP, end(e.Original.Destination, e.Original.DestinationPort), end(e.Original.Source, port)}, FromEither
		}
		if a := s.Local.Addr(); from == "" || f.own(o.remote.Addr()) || !a.IsUnspecified() && a != o.local.Addr() || s.Family == 4 && !o.local.Addr().Is4() {
			continue
		}
		begins[o] = from
		if all = append(all, o); answered(e) {
			alive = append(alive, o)
		}
	}
	if len(alive) > 0 {
		all = alive
	}
	for _, o := range all {
		f.add(tunnel, o, begins[o], 0)
	}
	if len(all) > 0 {
		return
	}
	local := s.Local
	if s.Family == 6 && local.Addr() == netip.IPv6Unspecified() {
		local = netip.AddrPortFrom(netip.Addr{}, local.Port()) // IPv4 too
	}
	f.add(tunnel, flow{protocolUDP, netip.AddrPort{}, local}, FromOutside, 0)
}

func end(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// answered says that a flow of UDP has gone both ways for a while, by the time that
// its entry has left: what was never answered lives for the shorter time.
func answered(e conntrack.Entry) bool {
	text, err := sysctl.Read("net.netfilter.nf_conntrack_udp_timeout")
	var unanswered uint32
	if _, scanned := fmt.Sscan(text, &unanswered); err != nil || scanned != nil {
		return true
	}
	return e.Timeout > unanswered
}
