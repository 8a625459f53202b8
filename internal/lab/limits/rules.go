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

// manyRules compares a policy of 10,000 rules with one of 10.
func (b *bench) manyRules() error {
	const few, many = 10, 10000
	const tenRules, tenAgain, manyRules = "10 rules", "10 rules, again", "10,000 rules"
	var cells []measure.Cell
	files := map[int]string{}
	for n := range map[int]bool{few: true, many: true} {
		file, err := b.policy(fmt.Sprintf("rules%d.yaml", n), similar(n))
		if err != nil {
			return err
		}
		files[n] = file
	}
	for i, v := range []struct {
		name  string
		rules int // that the traffic is about
		load  bool
	}{
		{bare, few, false},
		{tenRules, few, true},
		{tenAgain, few, true},
		{manyRules, many, true},
	} {
		l, err := measure.NewLab(b.net, fmt.Sprintf("rules%d", i))
		if err != nil {
			return err
		}
		if v.load {
			if _, err := b.apply(l, files[v.rules]); err != nil {
				return fmt.Errorf("load %s: %w", v.name, err)
			}
		}
		random := rand.New(rand.NewPCG(b.seed, uint64(v.rules)))
		flows, which := make([]measure.Flow, measure.Sources), make([]int, measure.Sources)
		to := measure.Target(addrset.IPv4, 0).Addr()
		for j := range flows {
			which[j] = random.IntN(v.rules)
			flows[j] = measure.Flow{
				From: netip.AddrPortFrom(ruleSource(which[j]), measure.SourcePort),
				To:   netip.AddrPortFrom(to, rulePort(which[j])),
			}
		}
		source, err := measure.Load(measure.Traffic{Flags: "S", Flows: flows})
		if err != nil {
			return err
		}
		defer source.Close()
		survives := measure.All
		if v.load {
			survives = func(j int) bool { return which[j] >= v.rules/2 }
		}
		cells = append(cells, measure.Cell{Name: v.name, Lab: l, Source: source, Survives: survives})
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(61), Packets: 1 << 15}, cells)
	if err != nil {
		return err
	}
	b.say("Connection attempts that the rules name, each rule equally often.")
	for _, c := range r.Cells {
		b.cost("SYN", c, r.NS(c), r.Added(c, bare))
	}
	b.ratio("added per packet by 10,000 rules against 10", 2,
		r.Added(manyRules, bare).Per(r.Added(tenRules, bare)), r.Added(tenAgain, bare).Per(r.Added(tenRules, bare)))
	b.ratio("the same, of the whole packet", 2,
		r.NS(manyRules).Per(r.NS(tenRules)), r.NS(tenAgain).Per(r.NS(tenRules)))

	l, err := measure.NewLab(b.net, "load")
	if err != nil {
		return err
	}
	var took, cpu stats.Series
	for range b.rounds(9) {
		if err := b.empty(l); err != nil {
			return err
		}
		run, err := b.apply(l, files[many])
		if err != nil {
			return err
		}
		took, cpu = append(took, run.wall.Seconds()), append(cpu, run.cpu.Seconds())
	}
	b.atMost("10,000 rules, compiled and loaded", "s", took, 1)
	b.atMost("the same, time of processors", "s", cpu, 0)
	return nil
}
