package reach

import (
	"net/netip"

	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// rewrite changes an address of the packet; translates says that connection tracking
// does it.
func (e *evaluation) rewrite(w program.Rewriting, translates bool) {
	at := e.rewritten(w)
	to := *at
	switch {
	case w.To.IsValid():
		to = w.To
	case w.From.IsValid():
		to = mapPrefix(*at, w.From, w.As)
	}
	switch {
	case !translates:
		*at = to
		if w.Field == program.Destination && w.From != w.As {
			e.packet.DestinationLocal = packet.Unknown
		}
	case w.Field == program.Destination:
		local := packet.No
		switch {
		case w.Own:
			local = packet.Yes
		case w.To.IsValid() && to == *at:
			local = e.packet.DestinationLocal
			if w.Port == 0 || w.Port == e.packet.Port {
				return // nf_nat_setup_info (net/netfilter/nf_nat_core.c) sets no status then
			}
		}
		e.dnat(to, w.Port, local)
	case !w.Own:
		e.snat(to)
	}
}

// rewritten is the address of the packet that is rewritten.
func (e *evaluation) rewritten(w program.Rewriting) *netip.Addr {
	if w.Field == program.Destination {
		return &e.packet.Destination
	}
	return &e.packet.Source
}

// pastTranslation says that an action translates to an address, and not this
// packet: the kernel then asks the next rule.
func (e *evaluation) pastTranslation(w program.Rewriting) bool {
	at := *e.rewritten(w)
	switch {
	case !at.IsValid():
		return false
	case w.From.IsValid():
		return !w.From.Contains(at)
	}
	return w.To.IsValid() && w.To.Is4() != at.Is4()
}

func (e *evaluation) dnat(to netip.Addr, port uint16, local packet.Answer) {
	e.packet.Original = e.packet.Arrived()
	e.packet.Destination, e.packet.DNAT, e.packet.DestinationLocal = to, true, local
	if port != 0 {
		e.packet.Port = port
	}
}

func (e *evaluation) snat(to netip.Addr) {
	e.packet.Original = e.packet.Arrived()
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
