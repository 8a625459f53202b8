package calibrate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

// doubledFrom is how often a set of n has doubled, as the prices of a packet count.
func doubledFrom(n float64) float64 { return math.Log2(2 + n) }

// scattered is n ranges of 16 addresses, spread evenly over what is not special.
func scattered(n int, random *rand.Rand) addrset.Set {
	var b addrset.Builder
	for i := range n {
		at := 1<<28 + uint32((float64(i)+random.Float64()*0.9)/float64(n)*(1<<30))&^15
		b.AddRange(addrset.Range{From: address(at), To: address(at | 15)})
	}
	return b.Set()
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// sizes are those of the curves' points.
var sizes = []int{16, 256, 4096, 16384, 65536}

// lookups measures what lookups cost that ask a set for all of its elements in
// turn, so that they are far away.
func (m *Measured) lookups(ctx context.Context, net *testnet.Net, o Options) error {
	o.Say("lookups in large sets")
	random := rand.New(rand.NewPCG(4, 4))
	b := bench{net: net, label: "l"}
	table := func(sets, rules string) string {
		return "table inet t {\n" + sets + "\nchain in { type filter hook input priority 0; policy accept;\n" + rules + "\n}\n}\n"
	}
	load := func(from []netip.Addr) (*measure.Source, error) {
		return measure.Load(measure.UDP(from, measure.Target(addrset.IPv4, 9)))
	}
	anywhere, err := load(measure.ByAddress(scattered(1<<16, random), addrset.IPv4, measure.Sources, 1))
	if err != nil {
		return err
	}
	defer anywhere.Close()
	var bitmaps, asked strings.Builder
	for i := range repeated {
		fmt.Fprintf(&bitmaps, "set b%d { typeof @nh,96,8; elements = { 1, 2, 3, 250, 251 }; }\n", i)
		fmt.Fprintf(&asked, "@nh,96,8 @b%d continue\n", i)
	}
	for _, v := range []struct{ name, ruleset string }{
		{bare, table("", "")},
		{again, table("", "")},
		{"question", table("", strings.Repeat("@nh,96,8 1 continue\n", repeated))},
		{"bitmap", table(bitmaps.String(), asked.String())},
		{"enter", table("chain c { }", strings.Repeat("jump c\n", repeated))},
	} {
		if err := b.add(v.name, v.ruleset, anywhere); err != nil {
			return err
		}
	}
	for _, n := range sizes {
		s := scattered(n, random)
		var single addrset.Builder
		for r := range s.Each() {
			single.AddRange(addrset.Range{From: r.From, To: r.From})
		}
		one := single.Set()
		for _, v := range []struct {
			name, set string
			from      []netip.Addr
		}{
			{"interval", "flags interval; elements = { " + strings.ReplaceAll(s.String(), ", ", ",") + " }", measure.ByRange(s, addrset.IPv4, measure.Sources, 1)},
			{"hash", fmt.Sprintf("size %d; elements = { %s }", n, one), measure.ByAddress(one, addrset.IPv4, measure.Sources, 1)},
		} {
			source, err := load(v.from)
			if err != nil {
				return err
			}
			defer source.Close()
			if err := b.add(fmt.Sprintf("%s %d", v.name, n), table("set s { type ipv4_addr; "+v.set+"; }", "ip saddr @s continue"), source); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	r, err := b.run(ctx, o, "lookups in large sets")
	if err != nil {
		return err
	}
	question := times(r.Added("question", bare), repeated)
	m.take("lookup.question-ns", question)
	m.take("lookup.bitmap-ns", less(times(r.Added("bitmap", bare), repeated), question.Estimate().Median))
	m.take("lookup.enter-ns", times(r.Added("enter", bare), repeated))
	for _, kind := range []string{"interval", "hash"} {
		var before stats.Series
		for _, n := range sizes {
			s := less(r.Added(fmt.Sprintf("%s %d", kind, n), bare), question.Estimate().Median)
			// A larger set costs no less: what says so is noise.
			for i := range before {
				s[i] = max(s[i], before[i])
			}
			m.take(fmt.Sprintf("lookup.%s-set.of-%d-ns", kind, n), s)
			before = s
		}
	}
	m.Same = append(m.Same, r.Added(again, bare)...)
	return nil
}
