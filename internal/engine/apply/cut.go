package apply

import (
	"net"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/link"
)

// cut deletes the tracked flows that a program would refuse if they began now,
// and says how many. What cannot be told stays.
func (s *session) cut(p *program.Program) (int, error) {
	local, err := localAddresses()
	if err != nil {
		return 0, err
	}
	routing := link.NewRouting()
	return conntrack.Delete(func(e conntrack.Entry) bool {
		first, way := firstPacket(e, local)
		addDevices(routing, &first, way)
		r := reach.Evaluate(p, first, way)
		return r.Certain && r.Verdict != program.Accept
	})
}

// forgetUntracked deletes the entries of flows that a program no longer tracks.
// An entry that misses a part of its connection calls what it sees later
// invalid: without this, connections would hang when a policy that tracks them
// returns, as it does when nobody confirms.
func (s *session) forgetUntracked(p *program.Program) error {
	if !bypasses(p) {
		return nil
	}
	local, err := localAddresses()
	if err != nil {
		return err
	}
	_, err = conntrack.Delete(func(e conntrack.Entry) bool {
		first, way := firstPacket(e, local)
		r := reach.Evaluate(p, first, way)
		return len(r.Doubts) == 0 && r.Packet.State == packet.Untracked
	})
	return err
}

// bypasses says whether a program leaves more than loopback untracked.
func bypasses(p *program.Program) bool {
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			onLoopback := slices.ContainsFunc(r.Match, func(m program.Condition) bool {
				return (m.Field == program.InInterface || m.Field == program.OutInterface) && slices.Contains(m.Names, "lo") ||
					m.Field == program.Source && len(m.Addresses) == 1 && m.Addresses[0].From.IsLoopback()
			})
			if !onLoopback && r.Untracks() {
				return true
			}
		}
	}
	return false
}

func localAddresses() (map[netip.Addr]bool, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	local := map[netip.Addr]bool{}
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			local[prefix.Addr().Unmap()] = true
		}
	}
	return local, nil
}

// firstPacket is what began a flow. Another tool may have rewritten the
// destination: the reply's source tells where it went.
func firstPacket(e conntrack.Entry, local map[netip.Addr]bool) (packet.Packet, reach.Way) {
	here := func(a netip.Addr) bool { return a.IsLoopback() || local[a] }
	p := packet.Packet{
		Source: e.Original.Source, Destination: e.Original.Destination, Protocol: e.Protocol,
		SourcePort: e.Original.SourcePort, Port: e.Original.DestinationPort, Owner: -1,
		SourceLocal: packet.Is(here(e.Original.Source)), DestinationLocal: packet.Is(here(e.Original.Destination)),
	}
	switch p.Protocol {
	case packet.TCP:
		p.Flags = packet.SYN
	case packet.ICMP:
		p.ICMPType = 8 // only echo requests and the like begin flows
	case packet.ICMPv6:
		p.ICMPType = 128
	}
	if here(p.Source) {
		return p, reach.Out
	}
	to := netip.AddrPortFrom(e.Reply.Source, e.Reply.SourcePort)
	if to != netip.AddrPortFrom(p.Destination, p.Port) && p.Protocol != packet.ICMP && p.Protocol != packet.ICMPv6 {
		p.Original = p.Tuple()
		p.Destination, p.Port, p.DNAT = to.Addr(), to.Port(), true
		p.DestinationLocal = packet.Is(here(p.Destination))
	}
	if p.DestinationLocal == packet.Yes {
		return p, reach.In
	}
	return p, reach.Through
}
