package doctor

import (
	"net/netip"

	"sluice/internal/base/packet"
)

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
