package compile

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// services gives the ways in which a packet is of one of the services, by the
// port of the field; a rule without a service is about every protocol, which
// is one empty way. Ways of one protocol are merged.
func services(refs []policy.ServiceRef, port program.Field) []match {
	if len(refs) == 0 {
		return []match{nil}
	}
	w := wire{whole: map[uint8]bool{}, ports: map[uint8][]policy.PortRange{}}
	for _, ref := range refs {
		for _, m := range ref.Matches {
			if m.Any {
				return []match{nil}
			}
			w.add(m)
		}
	}
	return w.ways(port)
}

// wire gathers services by what they are on the wire.
type wire struct {
	order []uint8
	whole map[uint8]bool // every port or type of the protocol
	ports map[uint8][]policy.PortRange
	icmp4 []uint64
	icmp6 []uint64
}

func (w *wire) add(m policy.ServiceMatch) {
	if m.Protocol == packet.ICMP {
		w.seen(packet.ICMP)
		w.seen(packet.ICMPv6)
		switch {
		case m.ICMP == nil:
			w.whole[packet.ICMP], w.whole[packet.ICMPv6] = true, true
		default:
			if m.ICMP.V4 >= 0 {
				w.icmp4 = append(w.icmp4, uint64(m.ICMP.V4))
			}
			if m.ICMP.V6 >= 0 {
				w.icmp6 = append(w.icmp6, uint64(m.ICMP.V6))
			}
		}
		return
	}
	w.seen(m.Protocol)
	if len(m.Ports) == 0 {
		w.whole[m.Protocol] = true
	}
	w.ports[m.Protocol] = append(w.ports[m.Protocol], m.Ports...)
}

func (w *wire) seen(p uint8) {
	if !slices.Contains(w.order, p) {
		w.order = append(w.order, p)
	}
}

func (w *wire) ways(port program.Field) []match {
	var out []match
	for _, p := range w.order {
		is := match{protocol(p)}
		switch {
		case w.whole[p]:
			out = append(out, is)
		case p == packet.ICMP:
			if len(w.icmp4) > 0 {
				out = append(out, is.and(numbers(program.ICMPType, sorted(w.icmp4)...)))
			}
		case p == packet.ICMPv6:
			if len(w.icmp6) > 0 {
				out = append(out, is.and(numbers(program.ICMPv6Type, sorted(w.icmp6)...)))
			}
		default:
			out = append(out, is.and(program.Condition{Field: port, Numbers: mergePorts(w.ports[p])}))
		}
	}
	return out
}

func sorted(n []uint64) []uint64 {
	slices.Sort(n)
	return slices.Compact(n)
}

// mergePorts sorts port ranges and joins those that touch.
func mergePorts(ports []policy.PortRange) []program.NumberRange {
	out := make([]program.NumberRange, len(ports))
	for i, p := range ports {
		out[i] = program.NumberRange{From: uint64(p.From), To: uint64(p.To)}
	}
	return program.MergeNumbers(out)
}

// protocolOf gives the protocol that a way of services asks for, 0 for none.
func protocolOf(way match) uint8 {
	for _, c := range way {
		if c.Field == program.Protocol && len(c.Numbers) == 1 {
			return uint8(c.Numbers[0].From)
		}
	}
	return 0
}

// hasPorts says whether a match looks at a port, of either end.
func hasPorts(m match) bool {
	return slices.ContainsFunc(m, func(c program.Condition) bool {
		return c.Field == program.Port || c.Field == program.SourcePort || len(c.SetKey) > 0
	})
}
