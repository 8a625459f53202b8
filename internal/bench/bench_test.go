package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/addrset"
	"sluice/internal/measure"
	"sluice/internal/samples"
	"sluice/internal/testnet"
)

func testBench(t *testing.T) *bench {
	t.Helper()
	measure.Require(t)
	return &bench{Context: t.Context(), report: newReport(io.Discard), net: testnet.New(t), short: true, seed: 1, dir: t.TempDir()}
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
	var out bytes.Buffer
	r := newReport(&out)
	r.title("layouts", "sets")
	same := samples.Series{1, 1.01, 0.99, 1, 1, 1, 1}
	flat := func(x float64) samples.Series { return samples.Series{x, x, x, x, x, x, x} }
	r.ratio("good", "≤ 0.55 ×", 0.55, flat(0.5), same)
	r.ratio("bad", "≤ 0.55 ×", 0.55, flat(0.6), same)
	r.ratio("noisy", "≤ 0.55 ×", 0.55, flat(0.5), flat(1.2))
	r.ratio("asked nothing", "", 0, flat(3), same)
	r.atMost("quick", "ms", flat(3).Estimate(), 20)
	r.absent("ban", "≤ 20 ms", "no such command")
	want := map[string]string{"good": reached, "bad": notReached, "noisy": unsure, "asked nothing": shown, "quick": reached, "ban": missing}
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := r.writeJSON(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read report
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Figures) != len(want) {
		t.Fatalf("%d figures in the file, want %d", len(read.Figures), len(want))
	}
	for _, f := range read.Figures {
		if f.Reached != want[f.Name] {
			t.Errorf("%s: reached %q, want %q", f.Name, f.Reached, want[f.Name])
		}
	}
	out.Reset()
	r.summary(0)
	if strings.Contains(out.String(), "asked nothing") || !strings.Contains(out.String(), "bad") {
		t.Errorf("the summary has what was asked and nothing else:\n%s", out.String())
	}
}
