package packet

import "net/netip"

// Fields is a packet as JSON has it, by the flags of "sluice explain".
type Fields struct {
	Protocol    uint8      `json:"protocol"` // IANA
	Source      netip.Addr `json:"source"`
	SourcePort  uint16     `json:"source-port,omitempty"`
	Destination netip.Addr `json:"destination"`
	Port        uint16     `json:"port,omitempty"`
	ICMPType    *uint8     `json:"icmp-type,omitempty"` // of ICMP and ICMPv6
	In          string     `json:"in,omitempty"`
	Out         string     `json:"out,omitempty"`
}

// Fields is what a reader asks "sluice explain" about the packet by.
func (p *Packet) Fields() Fields {
	f := Fields{p.Protocol, p.Source, p.SourcePort, p.Destination, p.Port, nil, p.In, p.Out}
	if p.Protocol == ICMP || p.Protocol == ICMPv6 {
		f.ICMPType = &p.ICMPType
	}
	return f
}
