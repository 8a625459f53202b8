package limits

import (
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/product"
	"sluice/internal/lab/stats"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
)

const (
	oneSet      = "one interval set"
	oneAgain    = "one interval set, again"
	byHand      = "one interval set behind ct state, by hand"
	wholePolicy = "sluice, a whole policy with that rule"
	remedy      = "chain per /8, iptables"
)

// everyPeer is every way to drop what comes from a set; all but two do nothing else.
var everyPeer = []peer{
	{name: bare, load: loadNothing},
	{name: oneSet, load: by("nftables-set"), both: true},
	{name: oneAgain, load: by("nftables-set"), both: true},
	{name: ours, load: loadOurs, both: true},
	{name: byHand, load: loadByHand, both: true, optional: true},
	{name: wholePolicy, load: policyOf("blocked.yaml", allButEurope), both: true, optional: true},
	{name: "ipset hash:net", load: by("ipset (iptables-legacy)"), optional: true},
	{name: "a hash set per prefix length", load: by("hash-per-length"), optional: true},
	{name: "chain per /8, nftables", load: by("chain-per-/8 (nftables)"), optional: true},
	{name: remedy, load: by("chain-per-/8 (iptables-legacy)"), optional: true},
	{name: "linear rules", load: by("nftables-linear"), optional: true},
}

const allButEurope = `version: 1
sets:
  blocked: {continents: [AF, AN, AS, NA, OC, SA]}
input:
  default: allow
  rules:
    - drop any from blocked
`

// Names of the traffics of the layouts, and what is asked of their means.
const (
	weightBlocked, weightAllowed = "by weight, blocked", "by weight, allowed"
	rangeBlocked, rangeAllowed   = "by range, blocked", "by range, allowed"
	over48s                      = "over /48s"

	byWeight, byRange = "added, by weight", "added, by range"
)

// meant are the traffics that a quantity is the mean of.
var meant = map[string][]string{byWeight: {weightBlocked, weightAllowed}, byRange: {rangeBlocked, rangeAllowed}, over48s: {over48s}}

func (b *bench) layouts4() (lookup, error) {
	return b.layouts(contest{peers: everyPeer, blocked: b.world.blocked.Only4(), cases: b.draws4()})
}

func (b *bench) layouts6() (lookup, error) {
	// the other peers are IPv4's, or have no end here
	return b.layouts(contest{peers: everyPeer[:8], blocked: b.world.blocked.Only6(), cases: b.draws6()})
}

// layouts shows the table of every peer under every traffic. What it returns is a
// longer run of those alone that figures are about.
func (b *bench) layouts(c contest) (lookup, error) {
	there, cells, done, err := b.lay(c)
	defer done()
	if err != nil {
		return nil, err
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(15), Packets: 1 << 14}, cells)
	if err != nil {
		return nil, err
	}
	for _, p := range there {
		for _, t := range c.cases {
			if p.Name == bare {
				b.add(t.Name, bare, whole, "ns", r.NS(measure.Of(bare, t.Name)))
				continue
			}
			b.add(t.Name, p.Name, added, "ns", r.AddedMean(p.Name, bare, t.Name))
		}
		if p.Name != bare {
			b.add("load once", p.Name, "time", "s", stats.Series{p.Took.Seconds()})
		}
	}
	cells = slices.DeleteFunc(cells, func(c measure.Cell) bool {
		of, _, _ := strings.Cut(c.Name, ";")
		return of != bare && of != oneSet && of != oneAgain && of != ours
	})
	r, err = measure.Compare(b, measure.Plan{Rounds: b.rounds(101), Packets: 1 << 14}, cells)
	if err != nil {
		return nil, err
	}
	return func(quantity, peer string) stats.Series { return r.AddedMean(peer, bare, meant[quantity]...) }, nil
}

// loadByHand is what one writes by hand around the sets: connections first.
func loadByHand(b *bench, l *measure.Lab, s addrset.Set) error {
	m := peers.Blocked(s)
	m.Bare = false
	return loadPeer(b, l, "nftables-set", m)
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
	return artifact, product.Take(b, l.Namespace, engine, artifact)
}
