package nftables

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	measuring "sluice/internal/lab/measure"
	series "sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
	reading "sluice/internal/language/apart"
	"sluice/internal/language/geo"
	"sluice/internal/program"
)

// allButEurope is the real data that layouts are measured with: members, and
// Europe, which are the others.
func allButEurope(t testing.TB) (members, others addrset.Set) {
	t.Helper()
	cache := os.Getenv("SLUICE_GEO_CACHE")
	if cache == "" {
		cache = filepath.Join("..", "..", "..", ".cache", "geo")
	}
	dir := filepath.Join(cache, "dbip-country")
	if _, err := os.Stat(dir); err != nil {
		testnet.Lacks(t, "the data dbip-country", fmt.Errorf("%w\nhint: run scripts/fetch-geo-data", err))
	}
	d, err := geo.ReadFiles(t.Context(), reading.Process{}, filepath.Join(dir, "dbip-country-ipv4.csv"), filepath.Join(dir, "dbip-country-ipv6.csv"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.All()
	if err != nil {
		t.Fatal(err)
	}
	europe, err := d.Continents("EU")
	if err != nil {
		t.Fatal(err)
	}
	return all.Difference(europe), europe
}

// dropping is a program that drops what comes from a set.
func dropping(set addrset.Set) *program.Program {
	c := construct{match: conditions{setOn(program.Source, "served")}, actions: []program.Action{program.Drop}}
	p := c.program()
	p.Sets = append(p.Sets, program.Set{ID: "served", Key: []program.Field{program.Source}, Life: program.Static, Addresses: set})
	return p
}

// picking takes the candidate of one place, or the last one.
func picking(place int) layoutChoice {
	return layoutChoice{from: 1, choose: func(all []*largeSet, _ program.Layout) {
		for _, x := range all {
			x.current = min(place, len(x.costs)-1)
		}
	}}
}

// TestMeasureLayouts prints what the candidates cost on the real data, estimated
// and measured: the frontier among which one is chosen.
func TestMeasureLayouts(t *testing.T) {
	if !*measure {
		t.Skip("asked for by -measure")
	}
	measuring.Require(t)
	members, others := allButEurope(t)
	for _, family := range families {
		net := testnet.New(t)
		account := newAccount(t)
		f := addrset.Family(family)
		mine, rest := members.Only4(), others.Only4()
		if family == 6 {
			mine, rest = members.Only6(), others.Only6()
		}
		p := dropping(mine)
		p.Layout = program.Layout{Memory: 256 << 20, Load: 3_000_000_000}
		draws := map[string]*measuring.Source{}
		for name, set := range map[string]addrset.Set{"member": mine, "other": rest} {
			byAddress := measuring.ByAddress(set, f, measuring.Sources, 1)
			if family == 6 {
				byAddress = measuring.BySubnet48(set, measuring.Sources, 1)
			}
			for kind, drawn := range map[string]measuring.Traffic{
				"address": measuring.UDP(byAddress, measuring.Target(f, 9)),
				"range":   measuring.UDP(measuring.ByRange(set, f, measuring.Sources, 1), measuring.Target(f, 9)),
			} {
				s, err := measuring.Load(drawn)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				draws[kind+" "+name] = s
			}
		}
		bare, err := measuring.NewLab(net, "bare")
		if err != nil {
			t.Fatal(err)
		}
		var cells []measuring.Cell
		cell := func(name string, lab *measuring.Lab, survives func(int) bool) {
			for kind, s := range draws {
				keep := survives
				if strings.HasSuffix(kind, "other") {
					keep = measuring.All
				}
				cells = append(cells, measuring.Cell{Name: name + kind, Lab: lab, Source: s, Survives: keep})
			}
		}
		cell("bare ", bare, measuring.All)
		var costs []backend.LayoutCost
		lines := map[string]string{}
		for i, c := range candidates[family] {
			l, err := lowerChoosing(p, everything, &defaults, picking(i))
			if err != nil {
				t.Fatal(err)
			}
			cost := l.layouts[0].Candidates[i]
			lab, err := measuring.NewLab(net, fmt.Sprintf("c%d", i))
			if err != nil {
				t.Fatal(err)
			}
			bytes, took := taken(t, account, lab.Namespace, steps(l.tree, &State{}, openings{}, nil)...)
			got := defaults.of(l.tree)
			lines[c.name] = fmt.Sprintf("load %4.0f ms, estimated %4.0f; memory %5.1f MiB, estimated %5.1f; %d elements, %v, %d rules",
				took.Seconds()*1000, float64(got.LoadTime)/1e6, float64(bytes)/(1<<20), float64(got.Memory)/(1<<20), got.Elements, got.Objects, got.Rules)
			costs = append(costs, cost)
			cell(c.name+" ", lab, measuring.None)
		}
		r, err := measuring.Compare(t.Context(), measuring.Plan{Rounds: 9, Packets: 1 << 15}, cells)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range costs {
			var all []string
			for _, kind := range []string{"address", "range"} {
				member := r.Added(c.Name+" "+kind+" member", "bare "+kind+" member")
				other := r.Added(c.Name+" "+kind+" other", "bare "+kind+" other")
				one := series.Mean(r.Added(costs[0].Name+" "+kind+" member", "bare "+kind+" member"), r.Added(costs[0].Name+" "+kind+" other", "bare "+kind+" other"))
				estimated := c.ByAddress
				if kind == "range" {
					estimated = c.ByRange
				}
				all = append(all, fmt.Sprintf("by %s %4.0f / %4.0f ns, %.2f of one set, estimated %4.0f", kind,
					member.Estimate().Median, other.Estimate().Median, series.Mean(member, other).Per(one).Estimate().Median, estimated))
			}
			t.Logf("IPv%d, %s:\n\t%s\n\t%s", family, c.Name, strings.Join(all, "; "), lines[c.Name])
		}
	}
}
