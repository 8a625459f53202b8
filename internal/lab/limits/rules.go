package limits

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
)

// ruleSource is the source that rule i names.
func ruleSource(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{20, byte(i / 2500), byte(i / 50 % 50), byte(1 + i%50*5)})
}

func rulePort(i int) uint16 { return uint16(10000 + i*7%50000) }

// similar is a policy of n rules: one half drops single sources, the other lets
// single sources in to a port each.
func similar(n int) string {
	var b strings.Builder
	b.WriteString("version: 1\ninput:\n  default: drop\n  rules:\n")
	for i := range n {
		if i < n/2 {
			fmt.Fprintf(&b, "    - drop any from %s\n", ruleSource(i))
		} else {
			fmt.Fprintf(&b, "    - allow tcp/%d from %s\n", rulePort(i), ruleSource(i))
		}
	}
	return b.String()
}

// named are connection attempts that n rules name, each rule equally often.
func (b *bench) named(name string, n int) measure.Case {
	random := rand.New(rand.NewPCG(b.seed, uint64(n)))
	flows, which := make([]measure.Flow, measure.Sources), make([]int, measure.Sources)
	to := measure.Target(addrset.IPv4, 0).Addr()
	for i := range flows {
		which[i] = random.IntN(n)
		flows[i] = measure.Flow{
			From: netip.AddrPortFrom(ruleSource(which[i]), measure.SourcePort),
			To:   netip.AddrPortFrom(to, rulePort(which[i])),
		}
	}
	return measure.Case{Name: name, Traffic: measure.Traffic{Flags: "S", Flows: flows}, Survives: func(i int) bool { return which[i] >= n/2 }}
}

const (
	tenRules  = "10 rules"
	tenAgain  = "10 rules, again"
	manyRules = "10,000 rules"
)

// manyRules compares a policy of 10,000 rules with one of 10.
func (b *bench) manyRules() (lookup, error) {
	const few, many = "few", "many"
	const nFew, nMany = 10, 10000
	ten := policyOf("rules10.yaml", similar(nFew))
	of, err := b.costs("SYN", "Connection attempts that the rules name, each rule equally often.", contest{
		peers: []peer{
			{name: bare, load: loadNothing, under: few},
			{name: tenRules, load: ten, under: few},
			{name: tenAgain, load: ten, under: few},
			{name: manyRules, load: policyOf("rules10000.yaml", similar(nMany)), under: many},
		},
		cases:  []measure.Case{b.named(few, nFew), b.named(many, nMany)},
		rounds: 61,
	})
	if err != nil {
		return nil, err
	}
	file, err := b.policy("rules10000.yaml", similar(nMany))
	if err != nil {
		return nil, err
	}
	l, err := measure.NewLab(b.net, "load")
	if err != nil {
		return nil, err
	}
	took := taken{}
	for range b.rounds(9) {
		if err := b.empty(l); err != nil {
			return nil, err
		}
		run, err := b.apply(l, file)
		if err != nil {
			return nil, err
		}
		took.add(manyRules, run)
	}
	return func(quantity, peer string) stats.Series {
		if s := took.of(quantity, peer); s != nil {
			return s
		}
		return of(quantity, peer)
	}, nil
}
