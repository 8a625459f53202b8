package host

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/attached"
	"sluice/internal/system/kernel/ruleset"
)

// OwnTables are the names of Sluice's own tables, of whichever family; first the one with
// the rules of a policy.
var OwnTables = []string{"sluice", "sluice_generation", "sluice_shadow", "sluice_trace"}

// What a line of Facts.Unread begins with where rules of other tools are missing.
const (
	UnreadNFTables = "nftables of other tools"
	UnreadLegacy   = "legacy iptables"
	UnreadAttached = "what is attached beside rules"
)

// ReadAttached reads Attached, in the network namespace of the calling thread.
func (f *Facts) ReadAttached() {
	var errs []error
	f.Attached, errs = attached.List()
	for _, err := range errs {
		f.unread(UnreadAttached, err)
	}
}

func (f *Facts) readForeign(ctx context.Context) {
	tables, err := ruleset.NFTables(ctx, OwnTables...)
	if err != nil {
		f.unread(UnreadNFTables, err)
	}
	legacy, err := ruleset.Legacy(ctx)
	if err != nil {
		f.unread(UnreadLegacy, err)
	}
	f.addForeign(append(tables, legacy...))
}

func (f *Facts) addForeign(tables []ruleset.Table) {
	for _, t := range tables {
		chains := map[string]*ruleset.Chain{}
		for _, c := range t.Chains {
			chains[c.Name] = c
		}
		for _, c := range t.Chains {
			if c.Hook == "" {
				continue
			}
			f.ForeignChains = append(f.ForeignChains, ForeignChain{
				Family: t.Family, Table: t.Name, Name: c.Name, Legacy: t.Legacy,
				Type: c.Type, Hook: c.Hook, Priority: c.Priority, Policy: c.Policy,
				Drops:    c.Policy == "drop" || does(chains, c, map[string]bool{}, func(r *ruleset.Rule) bool { return r.Drops }),
				Rewrites: does(chains, c, map[string]bool{}, func(r *ruleset.Rule) bool { return r.Rewrites }),
				More:     effects(chains, c),
				Rules:    len(c.Rules),
			})
			if c.Type == "nat" && c.Hook == "output" {
				f.ForeignOutputNAT = true
			}
			if c.Type == "nat" && c.Hook == "prerouting" {
				walk := publishing{chains: chains, steps: maxSteps}
				walk.chain(c, ruleset.Match{}, 0)
				f.Published = append(f.Published, walk.found...)
			}
		}
	}
	sorting.By(f.ForeignChains, func(a, b ForeignChain) int {
		return cmp.Or(cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table), cmp.Compare(a.Name, b.Name))
	})
	sorting.By(f.Published, func(a, b Published) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port),
			a.Address.Compare(b.Address), a.To.Compare(b.To))
	})
	f.Published = slices.Compact(f.Published)
}

// effects is what the rules of the chain, or of one that it leads to, do beside
// dropping and rewriting, sorted.
func effects(chains map[string]*ruleset.Chain, c *ruleset.Chain) []ruleset.Effect {
	var all []ruleset.Effect
	does(chains, c, map[string]bool{}, func(r *ruleset.Rule) bool {
		all = append(all, r.More...)
		return false
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// does says whether a rule of the chain, or of one that it leads to, is such a one.
func does(chains map[string]*ruleset.Chain, c *ruleset.Chain, seen map[string]bool, such func(*ruleset.Rule) bool) bool {
	if c == nil || seen[c.Name] {
		return false
	}
	seen[c.Name] = true
	for _, r := range c.Rules {
		if such(&r) {
			return true
		}
		for _, j := range r.Jumps {
			if does(chains, chains[j.Chain], seen, such) {
				return true
			}
		}
	}
	return false
}

// Bounds of the walk through foreign chains: as deep as the kernel allows
// jumps, and no longer than a few seconds on the largest rulesets.
const (
	maxDepth = 16
	maxSteps = 500_000
	maxPorts = 4096 // a wider range is published as every port
)

// publishing follows the jumps from a chain and gathers what is rewritten.
type publishing struct {
	chains map[string]*ruleset.Chain
	steps  int
	found  []Published
}

func (p *publishing) chain(c *ruleset.Chain, above ruleset.Match, depth int) {
	if c == nil || depth > maxDepth {
		return
	}
	for _, r := range c.Rules {
		alternatives := r.Match
		if alternatives == nil {
			alternatives = []ruleset.Match{{}}
		}
		if len(r.NAT) == 0 && len(r.Jumps) == 0 {
			continue
		}
		for _, m := range alternatives {
			if p.steps--; p.steps < 0 {
				return
			}
			m, ok := m.And(above)
			if !ok {
				continue
			}
			for _, n := range r.NAT {
				if m, ok := m.And(n.Match); ok {
					p.publish(m, n.To)
				}
			}
			for _, j := range r.Jumps {
				if m, ok := m.And(j.Match); ok {
					p.chain(p.chains[j.Chain], m, depth+1)
				}
			}
		}
	}
}

func (p *publishing) publish(m ruleset.Match, to netip.AddrPort) {
	if m.Destination.IsValid() && m.Destination.IsLoopback() {
		return // for the host itself only
	}
	entry := Published{Protocol: m.Protocol, Address: m.Destination, To: to}
	if m.To == 0 || int(m.To)-int(m.From) > maxPorts {
		p.found = append(p.found, entry)
		return
	}
	for port := int(m.From); port <= int(m.To); port++ {
		entry.Port = uint16(port)
		p.found = append(p.found, entry)
	}
}
