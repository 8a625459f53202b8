package query

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/system/host"
)

// lead is a network and the interfaces that lead to it.
type lead struct {
	to addrset.Set
	by []string
}

// leadings are the networks that interfaces are in or routes lead to, except for default routes;
// the smallest first, which hold before those around them.
func leadings(facts host.Facts) (out []lead) {
	by := map[netip.Prefix][]string{}
	add := func(p netip.Prefix, device string) {
		if p = p.Masked(); p.Bits() > 0 && device != "" && device != "lo" && !slices.Contains(by[p], device) {
			by[p] = append(by[p], device)
		}
	}
	vrf := map[string]string{}
	for _, i := range facts.Interfaces {
		vrf[i.Name] = i.VRF
		for _, p := range i.Addresses {
			add(p, cmp.Or(i.VRF, i.Name))
		}
	}
	if facts.Routing != nil && !facts.Routing.Partial {
		for _, r := range facts.Routing.Routes {
			for _, h := range r.Hops {
				if r.Type == "" {
					add(r.To, cmp.Or(vrf[h.Out], h.Out))
				}
			}
		}
	}
	var order []netip.Prefix
	for p := range by {
		order = append(order, p)
	}
	sorting.StableBy(order, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(b.Bits(), a.Bits()), a.Addr().Compare(b.Addr()))
	})
	for _, p := range order {
		out = append(out, lead{addrset.FromPrefixes(p), by[p]})
	}
	return out
}
