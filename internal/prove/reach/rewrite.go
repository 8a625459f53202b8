package reach

import (
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// rewrite does what an action does to the packet; ends says that the base chain
// is over, as address translation ends its chain.
func (e *evaluation) rewrite(action program.Action) (ends bool) {
	switch a := action.(type) {
	case program.NoTrack:
		if e.packet.State == "" {
			e.packet.State = packet.Untracked
		}
	case program.SetMark:
		mask := maskOf(uint64(a.Mask))
		e.packet.Mark = e.packet.Mark&^mask | a.Value&mask
	case program.DNAT:
		local := packet.No
		if a.To == e.packet.Destination {
			local = e.packet.DestinationLocal
			if a.Port == 0 || a.Port == e.packet.Port {
				return true // nf_nat_setup_info (net/netfilter/nf_nat_core.c) sets no status then
			}
		}
		e.dnat(a.To, a.Port, local)
		return true
	case program.DNATPrefix:
		e.dnat(mapPrefix(e.packet.Destination, a.From, a.To), 0, packet.No)
		return true
	case program.Redirect:
		e.dnat(e.packet.Destination, a.Port, packet.Yes)
		return true
	case program.SNAT:
		e.snat(a.To)
		return true
	case program.SNATPrefix:
		e.snat(mapPrefix(e.packet.Source, a.From, a.To))
		return true
	case program.Masquerade:
		return true
	case program.MapSource:
		e.packet.Source = mapPrefix(e.packet.Source, a.From, a.To)
	case program.MapDestination:
		e.packet.Destination = mapPrefix(e.packet.Destination, a.From, a.To)
		if a.From != a.To {
			e.packet.DestinationLocal = packet.Unknown
		}
	}
	return false
}

// pastTranslation says that an action translates to an address, and not this
// packet: the kernel then asks the next rule.
func (e *evaluation) pastTranslation(action program.Action) bool {
	switch a := action.(type) {
	case program.DNAT:
		return e.packet.Destination.IsValid() && e.packet.Destination.Is4() != a.To.Is4()
	case program.SNAT:
		return e.packet.Source.IsValid() && e.packet.Source.Is4() != a.To.Is4()
	case program.DNATPrefix:
		return e.packet.Destination.IsValid() && !a.From.Contains(e.packet.Destination)
	case program.SNATPrefix:
		return e.packet.Source.IsValid() && !a.From.Contains(e.packet.Source)
	}
	return false
}

func (e *evaluation) remember() {
	if e.packet.Original == (packet.Tuple{}) {
		e.packet.Original = packet.Tuple{
			Source: e.packet.Source, Destination: e.packet.Destination,
			SourcePort: e.packet.SourcePort, Port: e.packet.Port,
		}
	}
}

func (e *evaluation) dnat(to netip.Addr, port uint16, local packet.Answer) {
	e.remember()
	e.packet.Destination, e.packet.DNAT, e.packet.DestinationLocal = to, true, local
	if port != 0 {
		e.packet.Port = port
	}
}

func (e *evaluation) snat(to netip.Addr) {
	e.remember()
	e.packet.Source, e.packet.SNAT = to, true
}

// mapPrefix puts an address of one prefix into another one of the same length,
// bit for bit; an address outside stays.
func mapPrefix(a netip.Addr, from, to netip.Prefix) netip.Addr {
	if !from.Contains(a) || from.Bits() != to.Bits() || a.BitLen() != to.Addr().BitLen() {
		return a
	}
	host, network := a.AsSlice(), to.Masked().Addr().AsSlice()
	for i := range host {
		keep := min(8, max(0, to.Bits()-8*i))
		mask := byte(0xff) << (8 - keep) // 0 where keep is 0: the shift loses every bit
		host[i] = network[i]&mask | host[i]&^mask
	}
	mapped, _ := netip.AddrFromSlice(host)
	return mapped
}
