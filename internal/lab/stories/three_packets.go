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
	subjects := []measure.Subject{{Name: noRules, Open: true}}
	for _, w := range ways {
		subjects = append(subjects, measure.Subject{Name: w.subject, Load: func(l *measure.Lab) error { return w.load(l.Namespace) }})
	}
	subjects, err := measure.Enter(subjects, func(label string) (*measure.Lab, error) { return measure.NewLab(r.Net, label) }, nil)
	if err != nil {
		return err
	}
	from := func(set addrset.Set) measure.Traffic {
		return measure.UDP(measure.ByAddress(set, addrset.IPv4, measure.Sources, r.Seed), measure.Target(addrset.IPv4, 9))
	}
	traffics := []measure.Case{
		{Name: "blocked source", Traffic: from(r.blocked), Survives: measure.None},
		{Name: "allowed source", Traffic: from(r.allowed), Survives: measure.All},
	}
	cells, done, err := measure.Beside(subjects, traffics)
	defer done()
	if err != nil {
		return err
	}
	result, err := measure.Compare(ctx, measure.Plan{Rounds: rounds, Packets: 1 << 14}, cells)
	if err != nil {
		return err
	}
	section := r.Section("packets", "What a packet of a new flow pays for the rules",
		"UDP from 65,536 sources, each address of the countries equally likely; added to the same packet without rules. All rulesets ask the connection table first.")
	added := map[string]stats.Series{}
	for _, w := range ways {
		if !strings.HasSuffix(w.subject, again) {
			for _, t := range traffics {
				section.Add(figures.Figure{Case: t.Name, Subject: w.subject, Quantity: "added per packet", Unit: r.each(), Samples: result.AddedMean(w.subject, noRules, t.Name)})
			}
		}
		added[w.subject] = result.AddedMean(w.subject, noRules, traffics[0].Name, traffics[1].Name)
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
