package resolve

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
)

// DefaultRoute is the word for the interfaces that default routes leave by.
const DefaultRoute = "default-route"

// RouteInterfaces stands among a zone's interfaces for those that default routes leave
// by. Which they are changes without the policy: what is said of it must hold whichever
// they are. No interface in a policy begins with its mark.
const RouteInterfaces = "@host.default-route"

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
			r.fail(word.Pos, "the default route of the host is not known", "")
			r.errs[len(r.errs)-1].Remedy = policy.NameOrGiveFacts
		case len(facts.DefaultRoute) == 0:
			r.fail(word.Pos, fmt.Sprintf("this host has no default route, so zone %q has no interface", z.Name), "name the interface")
		}
		out.Interfaces = append(out.Interfaces, RouteInterfaces)
		out.Followed = facts.DefaultRoute
	}
	slices.Sort(out.Interfaces)
	out.Interfaces = slices.Compact(out.Interfaces)
	var networks, own addrset.Builder
	for _, n := range z.Networks {
		networks.AddRange(n.Range)
	}
	for _, a := range r.opt.Facts.Own(out.HasInterface) {
		own.AddAddr(a)
	}
	out.Networks, out.Own = networks.Set(), own.Set()
	r.out.Zones[z.Name] = out
}

// Apart is the names and wildcards of zones that are taken for other interfaces than
// those that default routes leave by, since the policy names them apart. An interface
// that is both by the facts is not taken so.
func (r *Resolved) Apart() []string {
	var out []string
	for _, z := range r.Policy.Zones {
		zone := r.Zones[z.Name]
		if zone.FollowsRoute() {
			continue
		}
		for _, pattern := range zone.Interfaces {
			now := slices.ContainsFunc(r.Facts.DefaultRoute, func(name string) bool { return MatchInterface(pattern, name) })
			if !now && pattern != "*" && !slices.Contains(out, pattern) {
				out = append(out, pattern)
			}
		}
	}
	return out
}

// HasInterface says whether an interface of that name is of the zone, as the host is
// by the facts.
func (z *Zone) HasInterface(name string) bool {
	return slices.Contains(z.Followed, name) || z.Names(name)
}

// Names says whether the policy itself names the interface to be of the zone.
func (z *Zone) Names(name string) bool {
	return slices.ContainsFunc(z.Interfaces, func(pattern string) bool { return MatchInterface(pattern, name) })
}

// FollowsRoute says whether the interfaces that default routes leave by are of the zone.
func (z *Zone) FollowsRoute() bool { return slices.Contains(z.Interfaces, RouteInterfaces) }

// Patterns is the zone's interfaces with those that a default route leaves by, by the
// facts, in place of that word.
func (z *Zone) Patterns() []string {
	out := slices.DeleteFunc(slices.Clone(z.Interfaces), func(n string) bool { return n == RouteInterfaces })
	out = append(out, z.Followed...)
	slices.Sort(out)
	return slices.Compact(out)
}

// MatchInterface says whether an interface pattern of a policy, a name or the
// start of one before a *, fits a name.
func MatchInterface(pattern, name string) bool {
	if start, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(name, start)
	}
	return pattern == name
}
