package limits

import (
	"fmt"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/program"
)

// budgets are what the layouts of the frontier may take for both families, from
// little to much.
var budgets = []program.Layout{
	{Memory: 32 << 20, Load: 100_000_000},
	{}, // Sluice's own
	{Memory: 64 << 20, Load: 1_000_000_000},
	{Memory: 256 << 20, Load: 4_000_000_000},
}

// frontier shows what a packet costs for each budget of load time and kernel
// memory: what the search can choose among.
func (b *bench) frontier() (lookup, error) {
	artifacts := map[string]backend.Artifact{}
	peers := []peer{{name: bare, load: loadNothing}, {name: oneSet, load: by("nftables-set"), both: true}}
	for _, budget := range budgets {
		name := "sluice's own budget"
		if budget != (program.Layout{}) {
			name = fmt.Sprintf("%d MiB, %.2g s", budget.Memory>>20, float64(budget.Load)/1e9)
		}
		peers = append(peers, peer{name: name, both: true, optional: true, load: func(b *bench, l *measure.Lab, s addrset.Set) (err error) {
			artifacts[name], err = b.loadWithin(l, s, budget)
			return err
		}})
	}
	var traffics []measure.Case
	for i, drawn := range [][]measure.Case{b.draws4(), b.draws6()} {
		for _, c := range drawn {
			c.Name = fmt.Sprintf("IPv%d %s", 4+2*i, c.Name)
			traffics = append(traffics, c)
		}
	}
	there, cells, done, err := b.lay(contest{peers: peers, blocked: b.world.blocked, cases: traffics})
	defer done()
	if err != nil {
		return nil, err
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(21), Packets: 1 << 14}, cells)
	if err != nil {
		return nil, err
	}
	one := func(x float64) stats.Series { return stats.Series{x} }
	for _, p := range there {
		if p.Name == bare {
			continue
		}
		for _, t := range traffics {
			b.add(t.Name, p.Name, added, "ns", r.AddedMean(p.Name, bare, t.Name))
		}
		a := artifacts[p.Name]
		if a == nil {
			b.add("elements", p.Name, "size", "elements", one(float64(b.world.blocked.Len4()+b.world.blocked.Len6())))
			b.add("search and load", p.Name, "time", "s", one(p.Took.Seconds()))
			continue
		}
		c := a.Cost()
		b.say("%s: %s", p.Name, chosen(a))
		b.add("elements", p.Name, "size", "elements", one(float64(c.Elements)))
		b.add("search and load", p.Name, "time", "s", one(p.Took.Seconds()))
		b.add("load, predicted", p.Name, "time", "s", one(float64(c.LoadTime)/1e9))
		b.add("kernel memory, predicted", p.Name, "memory", "MiB", one(float64(c.Memory)/(1<<20)))
	}
	return nil, nil
}

// chosen is how the backend laid the families out, in its own words.
func chosen(a backend.Artifact) string {
	told, ok := a.(backend.LaidOut)
	if !ok {
		return ""
	}
	var names []string
	for _, r := range told.Layouts() {
		names = append(names, fmt.Sprintf("IPv%d %s", r.Family, r.Chosen))
	}
	return strings.Join(names, "; ")
}
