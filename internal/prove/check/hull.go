package check

import (
	"encoding/binary"
	"net/netip"
)

// hull is the lowest and highest service, source and destination of boxes. It
// tells most boxes apart that do not overlap.
type hull struct{ from, to [3]uint64 }

var noHull = hull{from: [3]uint64{^uint64(0), ^uint64(0), ^uint64(0)}}

func hullOf(boxes []box) hull {
	h := noHull
	for i := range boxes {
		h.add(&boxes[i])
	}
	return h
}

func (h *hull) add(b *box) {
	if n := b.numbers[service]; len(n) > 0 {
		h.extend(0, n[0].from, n[len(n)-1].to)
	}
	for i, side := range []int{source, destination} {
		if first, last, ok := b.addresses[side].Bounds(); ok {
			h.extend(1+i, addressRank(first), addressRank(last))
		}
	}
}

func (h *hull) extend(i int, from, to uint64) {
	h.from[i], h.to[i] = min(h.from[i], from), max(h.to[i], to)
}

// addressRank keeps the order of addresses, IPv4 below IPv6; of IPv6 it tells
// networks apart, not hosts.
func addressRank(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return 1<<63 | binary.BigEndian.Uint64(b[:8])>>1
}

func (h *hull) meets(o *hull) bool {
	return h.from[1] <= o.to[1] && o.from[1] <= h.to[1] &&
		h.from[0] <= o.to[0] && o.from[0] <= h.to[0] &&
		h.from[2] <= o.to[2] && o.from[2] <= h.to[2]
}
