// Package inventory is the file inventory.yaml of a fleet's repository: which hosts and guests
// there are, with their labels, addresses and facts. It stands for the controller where none
// is asked, as in CI. It is read as strictly as a policy, and says what is wrong in the same
// words, with file, line and column. Callers: fleet/classes and the commands about a
// repository.
package inventory

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/language/policy"
	"sluice/internal/language/source"
)

// Inventory is the hosts of a fleet, by name.
type Inventory struct {
	File  string
	Hosts []Host
}

// Host is one of them.
type Host struct {
	Pos       source.Pos
	Name      string
	Labels    map[string]string
	Addresses []netip.Addr // by which sets know it
	Facts     string       // the file of them, as it can be opened; "": nothing is known
	FactsPos  source.Pos
	Guests    []policy.Guest // by name
}

// Host is the one of that name, or nil.
func (inv *Inventory) Host(name string) *Host {
	i := slices.IndexFunc(inv.Hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return nil
	}
	return &inv.Hosts[i]
}

// Selected says whether a selector means the host; nil means every one.
func (h *Host) Selected(s *selector.Selector) bool {
	return s == nil || s.Match(h.Selecting())
}

// Selecting are the labels that selectors know of the host, its name among them.
func (h *Host) Selecting() map[string]string {
	out := make(map[string]string, len(h.Labels)+1)
	maps.Copy(out, h.Labels)
	out["host"] = h.Name
	return out
}

// View is what the host is in a fleet whose sets hold these members.
func (h *Host) View(members map[string][]policy.Range) *policy.View {
	return &policy.View{Host: h.Name, Labels: h.Labels, Members: members, Guests: h.Guests}
}

// Members is what the sets by hosts and guests hold. The error is of a selector that cannot
// be read.
func (inv *Inventory) Members(groups []*policy.Set) (map[string][]policy.Range, error) {
	labels := make([]map[string]string, len(inv.Hosts))
	for i := range inv.Hosts {
		labels[i] = inv.Hosts[i].Selecting()
	}
	out := map[string][]policy.Range{}
	for _, g := range groups {
		word := g.Hosts
		if word == nil {
			word = g.Guests
		}
		s, err := selector.Parse(word.Text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", word.Pos, err)
		}
		var members []policy.Range
		for i := range inv.Hosts {
			h := &inv.Hosts[i]
			if g.Hosts != nil && s.Match(labels[i]) {
				for _, a := range h.Addresses {
					members = append(members, policy.Range{Pos: h.Pos, Range: addrset.PrefixRange(netip.PrefixFrom(a, a.BitLen()))})
				}
			}
			for j := range h.Guests {
				if guest := &h.Guests[j]; g.Guests != nil && s.Match(guest.Labels) {
					members = append(members, guest.Addresses...)
				}
			}
		}
		out[g.Name] = members
	}
	return out, nil
}
