package doctor

import (
	"net/netip"
	"slices"
)

// own says that an address is the host's.
func (s *Seen) own(a netip.Addr) bool {
	return slices.ContainsFunc(s.Devices, func(d Device) bool {
		return slices.ContainsFunc(d.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

func loopbackOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// beside is another address of the network of a device that has this one in it; invalid
// where there is none.
func (s *Seen) beside(d *Device, a netip.Addr) netip.Addr {
	for _, network := range d.Addresses {
		if network.Contains(a) {
			b := network.Masked().Addr().Next()
			for range 4 {
				if b != a && !s.own(b) && network.Contains(b.Next()) {
					return b
				}
				b = b.Next()
			}
		}
	}
	return netip.Addr{}
}
