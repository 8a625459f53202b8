package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
)

var everyPeer = []peer{
	{bare, loadNothing, false},
	{oneSet, by("nftables-set"), true},
	{oneAgain, by("nftables-set"), true},
	{ours, loadOurs, true},
	{byHand, loadByHand, true},
	{wholePolicy, loadWholePolicy, true},
	{"ipset hash:net", by("ipset (iptables-legacy)"), false},
	{"a hash set per prefix length", by("hash-per-length"), false},
	{"chain per /8, nftables", by("chain-per-/8 (nftables)"), false},
	{"chain per /8, iptables", by("chain-per-/8 (iptables-legacy)"), false},
	{"linear rules", by("nftables-linear"), false},
}

func (b *bench) layouts4() error {
	r, err := b.layouts(everyPeer, b.world.blocked.Only4(), b.draws4())
	if err != nil {
		return err
	}
	added := func(of string) (weight, byRange stats.Series) {
		traffics := b.draws4()
		return b.addedMean(r, of, traffics[:2]), b.addedMean(r, of, traffics[2:])
	}
	setWeight, setRange := added(oneSet)
	againWeight, againRange := added(oneAgain)
	oursWeight, oursRange := added(ours)
	b.ratio("added per packet against one interval set, sources by address weight, blocked and allowed averaged",
		0.55, oursWeight.Per(setWeight), againWeight.Per(setWeight))
	b.ratio("the same, every range equally likely", 1, oursRange.Per(setRange), againRange.Per(setRange))
	return nil
}

func (b *bench) layouts6() error {
	peers := everyPeer[:8] // the others are IPv4's, or have no end here
	r, err := b.layouts(peers, b.world.blocked.Only6(), b.draws6())
	if err != nil {
		return err
	}
	added := func(of string) stats.Series { return r.Added(cell(of, "over /48s"), cell(bare, "over /48s")) }
	b.ratio("added per packet, IPv6, sources uniform over allocated /48s", 0.6,
		added(ours).Per(added(oneSet)), added(oneAgain).Per(added(oneSet)))
	return nil
}

func cell(peer, traffic string) string { return peer + "; " + traffic }

// addedMean is what a peer adds to the bare stack, the mean over some traffics.
func (b *bench) addedMean(r *measure.Result, of string, traffics []drawn) stats.Series {
	var each []stats.Series
	for _, t := range traffics {
		each = append(each, r.Added(cell(of, t.name), cell(bare, t.name)))
	}
	return stats.Mean(each...)
}

// loaded is a peer that a lab has taken.
type loaded struct {
	peer
	lab  *measure.Lab
	took time.Duration
}

// lay loads every peer into a lab of its own and makes a cell of each under every
// traffic. What is done with the cells, done frees.
func (b *bench) lay(peers []peer, blocked addrset.Set, traffics []drawn) (there []loaded, cells []measure.Cell, done func(), err error) {
	var sources []*measure.Source
	done = func() {
		for _, s := range sources {
			s.Close()
		}
	}
	for i, p := range peers {
		l, err := measure.NewLab(b.net, fmt.Sprintf("peer%d", i))
		if err != nil {
			return nil, nil, done, err
		}
		set := blocked
		if p.both {
			set = b.world.blocked
		}
		begin := time.Now()
		if err := p.load(b, l, set); err != nil {
			if p.name == oneSet || p.name == oneAgain || p.name == ours {
				return nil, nil, done, fmt.Errorf("load %s: %w", p.name, err)
			}
			b.say("%s: left out: %s", p.name, firstLine(err))
			continue
		}
		there = append(there, loaded{p, l, time.Since(begin)})
	}
	for _, t := range traffics { // the peers of one traffic follow each other
		source, err := measure.Load(measure.UDP(t.addrs, measure.Target(t.family, 9)))
		if err != nil {
			return nil, nil, done, err
		}
		sources = append(sources, source)
		verdicts := t.verdicts()
		for _, p := range there {
			c := measure.Cell{Name: cell(p.name, t.name), Lab: p.lab, Source: source, Survives: verdicts}
			if p.name == bare {
				c.Survives = measure.All
			}
			cells = append(cells, c)
		}
	}
	return there, cells, done, nil
}

// layouts shows the table of every peer under every traffic. What it returns is a
// longer run of those alone that figures are about.
func (b *bench) layouts(peers []peer, blocked addrset.Set, traffics []drawn) (*measure.Result, error) {
	there, cells, done, err := b.lay(peers, blocked, traffics)
	defer done()
	if err != nil {
		return nil, err
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(15), Packets: 1 << 14}, cells)
	if err != nil {
		return nil, err
	}
	for _, p := range there {
		for _, t := range traffics {
			if p.name == bare {
				b.add(t.name, bare, "per packet", "ns", r.NS(cell(bare, t.name)))
				continue
			}
			b.add(t.name, p.name, "added per packet", "ns", r.Added(cell(p.name, t.name), cell(bare, t.name)))
		}
		if p.name != bare {
			b.add("load once", p.name, "time", "s", stats.Series{p.took.Seconds()})
		}
	}

	cells = slices.DeleteFunc(cells, func(c measure.Cell) bool {
		of, _, _ := strings.Cut(c.Name, ";")
		return of != bare && of != oneSet && of != oneAgain && of != ours
	})
	return measure.Compare(b, measure.Plan{Rounds: b.rounds(101), Packets: 1 << 14}, cells)
}

// loadOurs is the same decision by Sluice's own layout, without the rest of a
// policy: what is compared is the layout of the set.
func loadOurs(b *bench, l *measure.Lab, s addrset.Set) error {
	artifact, err := b.loadWithin(l, s, program.Layout{})
	if err == nil {
		if name := chosen(artifact); name != "" {
			b.say("sluice: %s", name)
		}
	}
	return err
}

// loadWithin lays a set out within a budget; the zero budget is Sluice's own.
func (b *bench) loadWithin(l *measure.Lab, s addrset.Set, budget program.Layout) (backend.Artifact, error) {
	p := &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{{
			Match:   []program.Condition{{Field: program.Source, Set: "blocked"}},
			Actions: []program.Action{program.Drop},
		}}}},
		Sets:   []program.Set{{ID: "blocked", Key: []program.Field{program.Source}, Life: program.Static, Addresses: s}},
		Layout: budget,
	}
	if err := optimize.Run(p, optimize.Options{}); err != nil {
		return nil, err
	}
	engine := nftables.New()
	artifact, err := engine.Lower(p, backend.Capabilities{})
	if err != nil {
		return nil, err
	}
	return artifact, l.Namespace.Do(func() error { return load(b, engine, artifact) })
}

// load brings an artifact into the kernel of the present namespace, where there
// is nothing of Sluice's yet.
func load(ctx context.Context, engine backend.Backend, artifact backend.Artifact) error {
	state, err := engine.Read(ctx, false)
	if err != nil {
		return err
	}
	if !state.Empty() {
		return errors.New("the lab is not empty")
	}
	steps, err := engine.Steps(artifact, state)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if err := s.Take(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// loadWholePolicy is the same as a policy, loaded by the binary.
func loadWholePolicy(b *bench, l *measure.Lab, _ addrset.Set) error {
	file, err := b.policy("blocked.yaml", allButEurope)
	if err != nil {
		return err
	}
	_, err = b.apply(l, file)
	return err
}

const allButEurope = `version: 1
sets:
  blocked: {continents: [AF, AN, AS, NA, OC, SA]}
input:
  default: allow
  rules:
    - drop any from blocked
`

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
