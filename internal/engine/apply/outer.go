package apply

import (
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/conntrack"
)

// forgetOuter deletes the entries of the flows that carry somebody who is logged in
// through a tunnel, where a policy is on trial. It runs behind the switch: their
// next packet is a new one and is asked by the rules, so that who confirms through
// the tunnel proves that it comes back by itself. With their entries they would
// live on, past the confirmation, and end when the tunnel is idle for once.
//
// Flows of TCP stay: they end by a packet and not by time, and a connection that is
// picked up in the middle is no proof of a new one.
func (s *session) forgetOuter(c change) {
	if c.wait == 0 {
		return
	}
	var flows []host.OuterFlow
	for _, p := range c.peers {
		if p.carries() && p.Outer.Unknown == "" && p.Outer.Protocol != packet.TCP {
			flows = append(flows, p.Outer)
		}
	}
	if len(flows) == 0 {
		return
	}
	_, err := conntrack.Delete(func(e conntrack.Entry) bool {
		for _, o := range flows {
			if ofOuter(e, o) {
				return true
			}
		}
		return false
	})
	if err != nil {
		s.note("the state of tunnels stays, so that confirming does not prove that they come back: %v", err)
	}
}

// ofOuter says whether an entry is of an outer flow, whoever began it. Ports that
// are not known may be any.
func ofOuter(e conntrack.Entry, o host.OuterFlow) bool {
	fits := func(have netip.Addr, port uint16, want netip.AddrPort) bool {
		return (!want.Addr().IsValid() || have == want.Addr()) && (want.Port() == 0 || port == want.Port())
	}
	from := e.Original
	answer := e.Reply
	return e.Protocol == o.Protocol &&
		(fits(from.Source, from.SourcePort, o.Remote) && fits(answer.Source, answer.SourcePort, o.Local) ||
			fits(from.Source, from.SourcePort, o.Local) && fits(from.Destination, from.DestinationPort, o.Remote))
}
