package limits

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

func testBench(t *testing.T) *bench {
	t.Helper()
	measure.Require(t)
	return &bench{Context: t.Context(), report: &report{Report: &figures.Report{Sections: []figures.Section{{}}}}, net: testnet.New(t), short: true, seed: 1, dir: t.TempDir()}
}

// TestPeersDecideAlike gives every peer the same random set and holds it to the
// verdict of each source: what is compared has to mean the same. The peers that
// need the binary are tried by the benchmark itself, which checks verdicts too.
func TestPeersDecideAlike(t *testing.T) {
	b := testBench(t)
	testnet.Require(t, testnet.Program("ipset"), testnet.Program("iptables-legacy-restore"), testnet.IPTablesLegacy("filter"))
	for _, family := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		blocked, sources := randomSet(family)
		known := make([]bool, len(sources))
		for i, a := range sources {
			known[i] = !blocked.Contains(a)
		}
		source, err := measure.Load(measure.UDP(sources, measure.Target(family, 9)))
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		for i, p := range everyPeer {
			if p.name == bare || p.name == wholePolicy || family == addrset.IPv6 && strings.HasPrefix(p.name, "chain per /8") {
				continue
			}
			t.Run(fmt.Sprintf("IPv%d %s", family, p.name), func(t *testing.T) {
				l, err := measure.NewLab(b.net, fmt.Sprintf("peer%d-%d", family, i))
				if err != nil {
					t.Fatal(err)
				}
				if err := p.load(b, l, blocked); err != nil {
					t.Fatal(err)
				}
				_, err = measure.Compare(t.Context(), measure.Plan{Rounds: 1, Packets: 2 * len(sources)}, []measure.Cell{
					{Name: p.name, Lab: l, Source: source, Survives: func(i int) bool { return known[i] }},
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// randomSet is some prefixes of all lengths that the peers distinguish, and
// sources in them, beside them and elsewhere.
func randomSet(f addrset.Family) (addrset.Set, []netip.Addr) {
	random := rand.New(rand.NewPCG(1, uint64(f)))
	all := measure.Usable(addrset.All())
	var b addrset.Builder
	var edges []netip.Addr
	for _, a := range measure.ByAddress(all, f, 300, 1) {
		p, err := a.Prefix(a.BitLen() - random.IntN(a.BitLen()-5))
		if err != nil {
			panic(err)
		}
		r := addrset.PrefixRange(p)
		b.AddRange(r)
		edges = append(edges, r.From, r.To, r.From.Prev(), r.To.Next())
	}
	var sources []netip.Addr
	for _, a := range append(edges, measure.ByAddress(all, f, 1000, 2)...) {
		if all.Contains(a) {
			sources = append(sources, a)
		}
	}
	return b.Set(), sources
}

func TestReportSaysWhatIsReached(t *testing.T) {
	r := &report{Report: &figures.Report{}}
	r.title("layouts", "sets")
	same := stats.Series{1, 1.01, 0.99, 1, 1, 1, 1}
	flat := func(x float64) stats.Series { return stats.Series{x, x, x, x, x, x, x} }
	r.ratio("good", 0.55, flat(0.5), same)
	r.ratio("bad", 0.55, flat(0.6), same)
	r.ratio("noisy", 0.55, flat(0.5), flat(1.2))
	r.ratio("asked nothing", 0, flat(3), same)
	r.atMost("quick", "ms", flat(3), 20)
	r.atMost("slow", "s", flat(3), 1)
	r.atMost("now and then", "s", stats.Series{0.5, 0.5, 0.5, 0.5, 3, 3, 3}, 1)
	want := map[string]figures.Reached{
		"layouts: good": figures.Yes, "layouts: bad": figures.No, "layouts: noisy": figures.NotShown,
		"layouts: quick": figures.Yes, "layouts: slow": figures.No, "layouts: now and then": figures.NotShown,
	}
	got := map[string]figures.Reached{}
	for _, g := range r.Goals {
		got[g.Name] = g.Reached
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(r.Sections[0].Figures); n != 4*2+3 {
		t.Errorf("%d figures, want a ratio and its A/A of four, and three others", n)
	}
}
