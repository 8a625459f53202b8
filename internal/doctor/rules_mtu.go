package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var tooBigDropped = Check{
	ID:    "too-big-dropped",
	What:  "rules drop the messages that tell a sender that its packets are too large",
	Least: check.Warning,
	Why: `Where a link on the way takes less than the sender sends, its router drops the packet and
says so by ICMP (type 3 code 4, of IPv6 type 2). Whoever drops that message makes a black hole:
connections open, small answers come, and large ones hang for ever. Asked are such a message
about a known connection of the host, and, where it forwards, one to a host behind it and one
that the host itself sends; said where connections of that way work, and the message is surely
dropped.`,
	Mend: `"ct state established,related accept" before all that drops ICMP; of IPv6, icmpv6 type
packet-too-big accept as well.`,
	Undo: "Take that rule away.",
	look: func(s *Seen, say func(Finding)) {
		for _, family := range []int{4, 6} {
			p, ok := s.fromInternet(family)
			if !ok {
				continue
			}
			ways := []aWay{{packet.In, p, "to the host"}}
			if s.anyDevice(fmt.Sprintf("net.ipv%d.conf.", family), ".forwarding") {
				ways = append(ways, aWay{packet.Out, p.Mirror(), "that the host sends"})
				for _, d := range s.inside(family, p.In) {
					to := p
					to.Out, to.Destination, to.DestinationLocal = d.device.Name, d.address, packet.No
					ways = append(ways, aWay{packet.Through, to, "to hosts behind " + d.device.Name})
				}
			}
			for _, w := range ways {
				known := w.p
				known.Protocol, known.SourcePort, known.Port, known.Flags, known.State, known.Reply = packet.TCP, 443, someEphemeral, packet.ACK, packet.Established, true
				if !s.passes(known, w.way) {
					continue
				}
				r, got := s.droppedOn(tooBig(w.p), w.way)
				if r == nil {
					continue
				}
				mend, undo := letKnown(r, got.Hook, got.Chain)
				say(Finding{
					Text:     fmt.Sprintf("packet-too-big messages of IPv%d %s are dropped by %s", family, w.what, byText(r, got)),
					Evidence: []Evidence{found(toolOf(r), "%s from %s to %s, related, at hook %s: dropped; tcp of the same connection: let through", tooBigName(family), w.p.Source, w.p.Destination, got.Hook)},
					Cost:     "connections that cross a smaller link hang at the first large packet",
					Mend:     mend,
					Undo:     undo,
				})
			}
		}
	},
}

// aWay is a packet, and where it goes.
type aWay struct {
	way  packet.Way
	p    packet.Packet
	what string
}

func tooBigName(family int) string {
	return map[int]string{4: "icmp type 3 code 4", 6: "icmpv6 type 2"}[family]
}

// tooBig makes a packet the message about a known connection that its packets are too large.
func tooBig(p packet.Packet) packet.Packet {
	p.Protocol, p.ICMPType, p.ICMPCode = packet.ICMP, 3, 4
	if p.Family() == 6 {
		p.Protocol, p.ICMPType, p.ICMPCode = packet.ICMPv6, 2, 0
	}
	p.SourcePort, p.Port, p.Flags, p.State = 0, 0, 0, packet.Related
	return p
}

// near is a device, and the address of a host that is in its network.
type near struct {
	device  *Device
	address netip.Addr
}

// inside are the devices of a family that lead elsewhere than one does.
func (s *Seen) inside(family int, than string) (out []near) {
	for i := range s.Devices {
		d := &s.Devices[i]
		if !d.Up || d.Name == than || d.Name == "lo" || d.Master != 0 {
			continue
		}
		for _, a := range d.Addresses {
			if a.Addr().Is4() != (family == 4) || a.Addr().IsLinkLocalUnicast() || a.IsSingleIP() {
				continue
			}
			if other := s.beside(d, a.Addr()); other.IsValid() {
				out = append(out, near{d, other})
				break
			}
		}
	}
	return out
}

// tunnels are kinds of devices whose packets have less room than those on both sides, as
// package link names them.
var tunnels = []string{"wireguard", "ppp", "tuntap", "gre", "ip6gre", "ipip", "ip6tnl", "sit", "vti", "vti6", "xfrm"}

var mssUnclamped = Check{
	ID:    "mss-unclamped",
	What:  "TCP is forwarded into a tunnel with smaller packets, and nothing tells the two ends",
	Least: check.Remark,
	Why: `Both ends of a connection through a tunnel agree on segments that their own links carry,
and the tunnel carries less. Path MTU discovery mends it, as long as every network on the way
passes the messages that it lives by; a rule that lowers the MSS in the SYN does not need them.
A warning where rules drop these messages of the host itself.`,
	Mend: "Clamp the MSS of what is forwarded into the tunnel.",
	Undo: "Take that rule away.",
	look: func(s *Seen, say func(Finding)) {
		for _, family := range []int{4, 6} {
			internet, ok := s.fromInternet(family)
			if !ok || !s.anyDevice(fmt.Sprintf("net.ipv%d.conf.", family), ".forwarding") {
				continue
			}
			all := s.inside(family, internet.In)
			if i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Name == internet.In }); i >= 0 {
				all = append(all, near{&s.Devices[i], internet.Source})
			}
			for _, small := range all {
				i := slices.IndexFunc(all, func(n near) bool { return n.device.MTU > small.device.MTU && s.unclamped(n, small) })
				if i < 0 || !slices.Contains(tunnels, small.device.Kind) {
					continue
				}
				large := all[i].device
				f := Finding{
					Text:     fmt.Sprintf("TCP of IPv%d is forwarded between %s and the tunnel %s without a clamp of the MSS", family, large.Name, small.device.Name),
					Evidence: []Evidence{found("ip link show "+large.Name, "MTU %d", large.MTU), found("ip link show "+small.device.Name, "MTU %d", small.device.MTU)},
					Mend: []string{
						fmt.Sprintf("nft: oifname %q tcp flags syn tcp option maxseg size set rt mtu, in a chain of hook forward", small.device.Name),
						fmt.Sprintf("iptables: -t mangle -A FORWARD -o %s -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", small.device.Name),
					},
				}
				p := internet
				p.In, p.Source, p.SourceLocal = large.Name, all[i].address, packet.No
				p = p.Mirror()
				if r, got := s.droppedOn(tooBig(p), packet.Out); r != nil {
					f.Severity = check.Warning
					f.Text += ", and the host does not say that a packet is too large: " + byText(r, got)
				}
				say(f)
			}
		}
	},
}

// unclamped says that TCP is surely forwarded between two devices, and that no rule lowers
// its MSS on either way.
func (s *Seen) unclamped(from, to near) bool {
	p := packet.Packet{In: from.device.Name, Out: to.device.Name, Source: from.address, Destination: to.address, DestinationLocal: packet.No, SourceLocal: packet.No, Owner: -1}
	service{packet.TCP, 443}.begin(&p)
	if !s.passes(p, packet.Through) {
		return false
	}
	answer := p.Mirror()
	answer.State, answer.Flags = packet.Established, packet.SYN|packet.ACK
	for _, r := range s.Rules {
		for _, rule := range r.Rules {
			if strings.Contains(rule.Text, "TCPMSS") || strings.Contains(rule.Text, "maxseg") {
				if !rule.Whole {
					return false // to a size of its own
				}
			}
		}
		for _, way := range []packet.Packet{p, answer} {
			if meets(r, p.Family()) && clampsMSS(r.Program, way) {
				return false
			}
		}
	}
	return true
}

// clampsMSS says that a rule lowers the MSS of a packet to what its route carries.
func clampsMSS(p *program.Program, pkt packet.Packet) (clamps bool) {
	measure(p, pkt, packet.Through, func(*program.Rule) {}, func(a program.Action) {
		clamps = clamps || a == program.Action(program.ClampMSS{})
	})
	return clamps
}
