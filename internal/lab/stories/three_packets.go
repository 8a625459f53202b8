package stories

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
)

// packets measures what each way of blocking costs a packet, and how long it
// takes to load.
func (r *resolving) packets(ctx context.Context, answer string) error {
	rounds, loads := r.packetRounds(31), 5
	if r.Short || r.Counted() {
		loads = 1
	}
	ways := r.blockings(ctx, answer)
	twice := ways[len(ways)-1]
	twice.subject += again
	ways = append(ways, twice)

	r.Say("measuring packets, %d rounds", rounds)
	loadTimes := map[string]stats.Series{}
	labs := map[string]*measure.Lab{}
	bare, err := measure.NewLab(r.Net, "bare")
	if err != nil {
		return err
	}
	for i, w := range ways {
		lab, err := measure.NewLab(r.Net, fmt.Sprintf("way%d", i))
		if err != nil {
			return err
		}
		if err := w.load(lab.Namespace); err != nil {
			return fmt.Errorf("load %s: %w", w.subject, err)
		}
		labs[w.subject] = lab
	}
	type traffic struct {
		name    string
		set     addrset.Set
		allowed bool
	}
	traffics := []traffic{{"blocked source", r.blocked, false}, {"allowed source", r.allowed, true}}
	var cells []measure.Cell
	name := func(subject string, t traffic) string { return subject + "; " + t.name }
	for _, t := range traffics {
		source, err := measure.Load(measure.UDP(measure.ByAddress(t.set, addrset.IPv4, measure.Sources, r.Seed), measure.Target(addrset.IPv4, 9)))
		if err != nil {
			return err
		}
		defer source.Close()
		cells = append(cells, measure.Cell{Name: name(noRules, t), Lab: bare, Source: source, Survives: measure.All})
		for _, w := range ways {
			survives := measure.None
			if t.allowed {
				survives = measure.All
			}
			cells = append(cells, measure.Cell{Name: name(w.subject, t), Lab: labs[w.subject], Source: source, Survives: survives})
		}
	}
	result, err := measure.Compare(ctx, measure.Plan{Rounds: rounds, Packets: 1 << 14}, cells)
	if err != nil {
		return err
	}
	section := r.Section("packets", "What a packet of a new flow pays for the rules",
		"UDP from 65,536 sources, each address of the countries equally likely; added to the same packet without rules. All rulesets ask the connection table first.")
	added := map[string]stats.Series{}
	for _, w := range ways {
		var each []stats.Series
		for _, t := range traffics {
			a := result.Added(name(w.subject, t), name(noRules, t))
			each = append(each, a)
			if !strings.HasSuffix(w.subject, again) {
				section.Add(figures.Figure{Case: t.name, Subject: w.subject, Quantity: "added per packet", Unit: r.each(), Samples: a})
			}
		}
		added[w.subject] = stats.Mean(each...)
	}
	same := added[twice.subject].Per(added[sluiceSubject])
	for _, peer := range []string{oneChain, chainPer8} {
		r.Goal(figures.AtMost("Sluice against "+peer+", added per packet", "×", 1, added[sluiceSubject].Per(added[peer]), same))
	}

	once := added[oneChain].Estimate().Median
	r.Found(fmt.Sprintf("What the set's look-up does take: asking the connection table and the set, in one chain, adds %s %s to a packet of a new flow. Five seconds are some %s times as much.",
		figures.Number(once), r.each(), figures.Number(fiveSecondsAre(once))))

	host := r.Net.Namespace("loading")
	for range loads {
		for _, w := range ways[:len(ways)-1] {
			if err := clearHost(r.Stage, host); err != nil {
				return err
			}
			time.Sleep(200 * time.Millisecond) // the kernel frees large sets behind
			from := time.Now()
			if err := w.load(host); err != nil {
				return err
			}
			loadTimes[w.subject] = append(loadTimes[w.subject], time.Since(from).Seconds())
		}
	}
	section = r.Section("load", "How long the rules take to load", "From the start of the program that loads them to its end. Sluice compiles the policy, reads the kernel back and proves it in that time, and its rules are for IPv6 too, of which there are as many ranges again; the others are for IPv4 alone.")
	for _, w := range ways[:len(ways)-1] {
		section.Add(figures.Figure{Case: "load", Subject: w.subject, Quantity: "time to load", Unit: "s", Samples: loadTimes[w.subject]})
	}
	return nil
}

// fiveSecondsAre says how many times so many ns go into five seconds, to the nearest
// hundred thousand.
func fiveSecondsAre(ns float64) float64 { return math.Round(5e9/ns/1e5) * 1e5 }
