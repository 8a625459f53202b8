package host

import (
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
)

// What a policy and the rules made of it take from a host's interfaces. Compiling a
// policy and following the host ask the same.

// Own is the host's addresses on the interfaces that on accepts, nil all, sorted. Those
// of one link alone, which every interface has, are left out.
func (f *Facts) Own(on func(name string) bool) []netip.Addr {
	var out []netip.Addr
	for _, i := range f.Interfaces {
		if on != nil && !on(i.Name) {
			continue
		}
		for _, p := range i.Addresses {
			if !p.Addr().IsLinkLocalUnicast() {
				out = append(out, p.Addr())
			}
		}
	}
	return sorting.Unique(out, netip.Addr.Compare)
}

// Addresses is all that the host answers for: its addresses, and what local routes lead
// to it. Broadcasts are those of its networks, which it hears too.
func (f *Facts) Addresses() (own, broadcasts addrset.Set) {
	var mine, heard addrset.Builder
	for _, p := range f.Local {
		mine.AddPrefix(p)
	}
	for _, i := range f.Interfaces {
		for _, p := range i.Addresses {
			mine.AddAddr(p.Addr())
			if p.Addr().Is4() && p.Bits() < 31 {
				heard.AddAddr(addrset.PrefixRange(p).To)
			}
		}
	}
	return mine.Set(), heard.Set()
}

// Devices is the interfaces that on accepts except for loopback, sorted.
func (f *Facts) Devices(on func(name string) bool) []string {
	var out []string
	for _, i := range f.Interfaces {
		if i.Name != loopback && on(i.Name) {
			out = append(out, i.Name)
		}
	}
	slices.Sort(out)
	return out
}

// SeenAs is the name by which rules of input and forward see what comes in by an
// interface: of a port of a VRF, the VRF's (vrf_l3_rcv in drivers/net/vrf.c).
func (f *Facts) SeenAs(name string) string {
	for _, i := range f.Interfaces {
		if i.Name == name && i.VRF != "" {
			return i.VRF
		}
	}
	return name
}

// Has says whether there is an interface of that name.
func (f *Facts) Has(name string) bool {
	return slices.ContainsFunc(f.Interfaces, func(i Interface) bool { return i.Name == name })
}

// Beside is the networks of the host's interfaces that an address is in, sorted.
func (f *Facts) Beside(a netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, i := range f.Interfaces {
		for _, p := range i.Addresses {
			if p.Masked().Contains(a) {
				out = append(out, p.Masked())
			}
		}
	}
	return sorting.Unique(out, netip.Prefix.Compare)
}
