package doctor

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/check"
)

var mssUnclamped = Check{
	ID:    "mss-unclamped",
	What:  "TCP is forwarded into a tunnel with a smaller MTU, and its MSS is not clamped",
	Least: check.Remark,
	Why: `Both ends of a connection through a tunnel agree on segments that fit their own links, but not
the tunnel. Path MTU discovery corrects that, as long as every network on the path passes its
ICMP messages; a rule that lowers the MSS in the SYN does not need them. A warning if rules
drop these messages of the host itself.`,
	Fix:  "Clamp the MSS of connections that are forwarded into the tunnel.",
	Undo: "Delete that rule.",
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
					Fix: []string{
						fmt.Sprintf("nft: oifname %q tcp flags syn tcp option maxseg size set rt mtu, in a chain of hook forward", small.device.Name),
						fmt.Sprintf("iptables: -t mangle -A FORWARD -o %s -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", small.device.Name),
					},
				}
				p := internet
				p.In, p.Source, p.SourceLocal = large.Name, all[i].address, packet.No
				p = p.Mirror()
				if r, got := s.droppedOn(tooBig(p), packet.Out); r != nil {
					f.Severity = check.Warning
					f.Text += ", and the host's packet-too-big messages are dropped: " + byText(r, got)
				}
				say(f)
			}
		}
	},
}

// tunnels are kinds of devices whose packets have less room than those on both sides, as
// package link names them.
var tunnels = []string{"wireguard", "ppp", "tuntap", "gre", "ip6gre", "ipip", "ip6tnl", "sit", "vti", "vti6", "xfrm"}

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
