package live

import (
	"fmt"

	"sluice/internal/base/packet"
)

// lossReason says why the kernel let a packet fall between two chains, from what it
// counted.
func (x *experiment) lossReason(passed map[string]bool) string {
	p := x.question.Packet
	grew := func(names ...string) bool {
		for _, n := range names {
			if x.after[n] > x.before[n] {
				return true
			}
		}
		return false
	}
	switch {
	case p.Fragment:
		return "connection tracking holds a fragment until the others arrive: rules see whole packets"
	case x.noRoute || grew("Ip.OutNoRoutes", "Ip6OutNoRoutes"):
		return fmt.Sprintf("no route leads to %s", p.Destination)
	case grew("TcpExt.IPReversePathFilter"):
		return fmt.Sprintf("the reverse path filter (rp_filter): packets to %s do not leave by %s", p.Source, p.In)
	case grew("IpExt.InNoRoutes", "Ip6InNoRoutes"):
		return fmt.Sprintf("no route leads to %s", p.Destination)
	case grew("Ip.InAddrErrors", "Ip6InAddrErrors"):
		return fmt.Sprintf("%s is not an address of this host, and it does not forward packets that arrive by %s: %s is 0", p.Destination, p.In, forwardingSetting(p))
	case grew("Ip.InHdrErrors", "Ip6InHdrErrors"):
		return "its time to live (hop limit) is used up"
	case x.question.Way != packet.Out && len(passed) == 0:
		return fmt.Sprintf("%s does not accept it", p.In)
	case !passed["input"+firstChain] && !passed["forward"+firstChain] && x.question.Way != packet.Out:
		return "routing rejects it: an impossible source or destination (a martian), or forwarding is off"
	}
	return "something other than nf_tables and iptables holds it: IPsec, IPVS or a program at a hook"
}

// forwardingSetting is what lets packets go on that come in as one does.
func forwardingSetting(p packet.Packet) string {
	if p.Destination.Is6() {
		return "net.ipv6.conf." + p.In + ".forwarding"
	}
	return "net.ipv4.ip_forward (or net.ipv4.conf." + p.In + ".forwarding)"
}
