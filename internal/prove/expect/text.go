package expect

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// PacketText is one packet for a reader, such as "tcp from 192.0.2.1 port 40000
// to 198.51.100.1 port 22 in eth0".
func PacketText(p packet.Packet) string {
	from, to := end(p.Source, p.SourcePort, p), end(p.Destination, p.Port, p)
	led := ""
	if p.DNAT && p.Original.Destination.IsValid() {
		to, led = end(p.Original.Destination, p.Original.Port, p), ", led to "+to
	}
	text := protocolText(p) + " from " + from + " to " + to + p.Own.Given() + led
	if p.In != "" {
		text += " in " + p.In + p.InRoute.Given()
	}
	if p.Out != "" {
		text += " out " + p.Out + p.OutRoute.Given()
	}
	if p.Owner >= 0 {
		text += fmt.Sprintf(" by user %d", p.Owner)
	}
	if p.State != "" && p.State != packet.New {
		text += ", " + string(p.State)
	}
	return text
}

func end(a netip.Addr, port uint16, p packet.Packet) string {
	if !p.HasPorts() {
		return a.String()
	}
	return a.String() + " port " + strconv.Itoa(int(port))
}

func protocolText(p packet.Packet) string {
	if p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6 {
		if word, known := policy.ICMPWord(p.Protocol == packet.ICMPv6, uint64(p.ICMPType)); known {
			return word
		}
		return fmt.Sprintf("icmp type %d", p.ICMPType)
	}
	return cmp.Or(packet.PortProtocolName(p.Protocol), fmt.Sprintf("proto/%d", p.Protocol))
}
