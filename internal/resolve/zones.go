package resolve

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/addrset"
	"sluice/internal/policy"
)

// DefaultRoute is the word for the interfaces that default routes leave by.
const DefaultRoute = "default-route"

func (r *resolver) zone(z *policy.Zone) {
	out := &Zone{Name: z.Name, Pos: z.Pos, HasNetworks: len(z.Networks) > 0}
	for _, word := range z.Interfaces {
		if word.Text != DefaultRoute {
			out.Interfaces = append(out.Interfaces, word.Text)
			continue
		}
		facts := r.opt.Facts
		switch {
		case !facts.Known:
			r.fail(word.Pos, "nothing is known of the host's default route", "name the interface, or compile with the facts of the host (sluice facts --json)")
		case len(facts.DefaultRoute) == 0:
			r.fail(word.Pos, fmt.Sprintf("this host has no default route, so zone %q has no interface", z.Name), "name the interface")
		}
		out.Interfaces = append(out.Interfaces, facts.DefaultRoute...)
	}
	slices.Sort(out.Interfaces)
	out.Interfaces = slices.Compact(out.Interfaces)
	var networks, own addrset.Builder
	for _, n := range z.Networks {
		networks.AddRange(n.Range)
	}
	for _, i := range r.opt.Facts.Interfaces {
		if !out.HasInterface(i.Name) {
			continue
		}
		for _, a := range i.Addresses {
			if !a.Addr().IsLinkLocalUnicast() {
				own.AddAddr(a.Addr())
			}
		}
	}
	out.Networks, out.Own = networks.Set(), own.Set()
	r.out.Zones[z.Name] = out
}

// HasInterface says whether an interface of that name is of the zone.
func (z *Zone) HasInterface(name string) bool {
	return slices.ContainsFunc(z.Interfaces, func(pattern string) bool { return MatchInterface(pattern, name) })
}

// MatchInterface says whether an interface pattern of a policy, a name or the
// start of one before a *, fits a name.
func MatchInterface(pattern, name string) bool {
	if start, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(name, start)
	}
	return pattern == name
}
