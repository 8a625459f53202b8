package kerneltest

import (
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/drafts"
	"sluice/internal/language/policy"
)

func ranges(list ...*policy.Range) (out []policy.Range) {
	for _, r := range list {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out
}

func (g *shooter) edge(r addrset.Range) {
	for _, a := range []netip.Addr{r.From, r.To, r.From.Prev(), r.To.Next()} {
		if a.IsValid() {
			g.edges = append(g.edges, a)
		}
	}
}

// edgesOfSet bounds how many ranges of a set are looked at.
const edgesOfSet = 60

func (g *shooter) set(s addrset.Set) {
	list := s.Ranges()
	if len(list) > edgesOfSet {
		g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:edgesOfSet]
	}
	for _, r := range list {
		g.edge(r)
	}
}

// of is an address of a side of a rule, at its edges; any where there is none.
func (g *shooter) of(w *policy.Who) netip.Addr {
	if w == nil || w.Not && g.chance(2) || g.chance(6) {
		return g.anywhere()
	}
	item := w.Items[g.IntN(len(w.Items))]
	var set addrset.Set
	switch {
	case item.Name == "":
		set = addrset.Of(item.Literal)
	case g.resolved.Sets[item.Name] != nil:
		set = g.resolved.Sets[item.Name].Addresses
	case g.resolved.Zones[item.Name] != nil && g.resolved.Zones[item.Name].HasNetworks:
		set = g.resolved.Zones[item.Name].Networks
	default:
		return g.anywhere()
	}
	list := set.Ranges()
	if len(list) == 0 {
		return g.anywhere()
	}
	r := list[g.IntN(len(list))]
	if a := one(g.Rand, r.From, r.To, r.From, r.To, r.From.Prev(), r.To.Next()); a.IsValid() {
		return a
	}
	return r.From
}

func (g *shooter) anywhere() netip.Addr {
	if len(g.edges) > 0 && g.chance(2) {
		return g.edges[g.IntN(len(g.edges))]
	}
	return drafts.Near(g.Rand, netip.MustParsePrefix(drafts.Quarters[g.IntN(len(drafts.Quarters))]))
}

// travels says that the kernel routes packets of and to the address: it is none
// that means something to routing alone.
func travels(a netip.Addr) bool {
	if !a.IsGlobalUnicast() {
		return false
	}
	if a.Is4() {
		b := a.As4()
		return b[0] != 0 && b[0] < 224
	}
	return true
}

// special are addresses of the host's own networks that are nobody's: broadcast,
// and the one that means every router.
func (g *shooter) special(a netip.Addr) bool {
	for _, d := range yardDevices {
		for _, text := range slices.Concat(d.addresses, d.routes) {
			p := netip.MustParsePrefix(text).Masked()
			if !p.Contains(a) {
				continue
			}
			if a == p.Addr() || a.Is4() && a.As4()[3] == 255 {
				return true
			}
		}
	}
	return false
}

var ownAddresses = func() (out []netip.Addr) {
	for _, d := range yardDevices {
		for _, text := range d.addresses {
			out = append(out, netip.MustParsePrefix(text).Addr())
		}
	}
	return out
}()

func (g *shooter) own(v6 bool) netip.Addr {
	for {
		if a := ownAddresses[g.IntN(len(ownAddresses))]; a.Is6() == v6 {
			return a
		}
	}
}
