package limits

import (
	"cmp"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/stats"
)

// peer is one way to have rules in a lab of its own.
type peer struct {
	name string
	// load brings them there. The set is what is to be blocked, where a contest is about
	// one.
	load func(b *bench, l *measure.Lab, blocked addrset.Set) error
	// both is for peers that block the addresses of both families, as in a policy; the
	// others have those of the family that is measured.
	both bool
	// optional is left out, with the reason, where it cannot be loaded.
	optional bool
	under    string // the one case that it is measured under; "" is every one
}

// Names that the figures refer to.
const (
	bare = "no rules"
	ours = "sluice"
)

func loadNothing(*bench, *measure.Lab, addrset.Set) error { return nil }

// rules loads a text by nft.
func rules(text string) func(*bench, *measure.Lab, addrset.Set) error {
	return func(b *bench, l *measure.Lab, _ addrset.Set) error { _, err := b.nft(l, []byte(text)); return err }
}

// policyOf loads a policy by the binary.
func policyOf(name, text string) func(*bench, *measure.Lab, addrset.Set) error {
	return func(b *bench, l *measure.Lab, _ addrset.Set) error {
		file, err := b.policy(name, text)
		if err == nil {
			_, err = b.apply(l, file)
		}
		return err
	}
}

// by loads what package peers has under a name.
func by(name string) func(*bench, *measure.Lab, addrset.Set) error {
	return func(b *bench, l *measure.Lab, s addrset.Set) error {
		return loadPeer(b, l, name, peers.Blocked(s))
	}
}

func loadPeer(b *bench, l *measure.Lab, name string, m peers.Meaning) error {
	found, err := peers.Named(name)
	if err != nil {
		return err
	}
	return found[0].Load(b, l.Namespace, m)
}

// contest is peers beside each other, under the same packets.
type contest struct {
	peers   []peer
	blocked addrset.Set
	cases   []measure.Case
	own     []netip.Addr // more addresses of every lab
	rounds  int
}

// lay loads every peer into a lab of its own and makes a cell of each under its cases.
// What is done with the cells, done frees.
func (b *bench) lay(c contest) (there []measure.Subject, cells []measure.Cell, done func(), err error) {
	subjects := make([]measure.Subject, len(c.peers))
	for i, p := range c.peers {
		set := c.blocked
		if p.both {
			set = b.world.blocked
		}
		subjects[i] = measure.Subject{
			Name: p.name, Open: p.name == bare, Under: p.under, Optional: p.optional,
			Load: func(l *measure.Lab) error { return p.load(b, l, set) },
		}
	}
	there, err = measure.Enter(subjects, func(label string) (*measure.Lab, error) {
		l, err := measure.NewLab(b.net, label)
		for i := 0; err == nil && i < len(c.own); i++ {
			err = l.Own(c.own[i])
		}
		return l, err
	}, func(name string, why error) { b.say("%s: left out: %s", name, firstLine(why)) })
	if err != nil {
		return nil, nil, func() {}, err
	}
	cells, done, err = measure.Beside(there, c.cases)
	return there, cells, done, err
}

// Quantities of what a packet costs.
const (
	whole = "per packet"
	added = "added per packet"
)

// costs measures a contest in which each peer has one case, and shows what a packet costs
// under each, and what that is over the bare stack.
func (b *bench) costs(row, about string, c contest) (lookup, error) {
	there, cells, done, err := b.lay(c)
	defer done()
	if err != nil {
		return nil, err
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: b.rounds(c.rounds), Packets: 1 << 15}, cells)
	if err != nil {
		return nil, err
	}
	cell := map[string]string{}
	for _, p := range there {
		cell[p.Name] = measure.Of(p.Name, cmp.Or(p.Under, c.cases[0].Name))
	}
	of := func(quantity, peer string) stats.Series {
		if quantity == added {
			return r.Added(cell[peer], cell[bare])
		}
		return r.NS(cell[peer])
	}
	b.say("%s", about)
	for _, p := range there {
		b.add(row, p.Name, whole, "ns", of(whole, p.Name))
		if p.Name != bare {
			b.add(row, p.Name, added, "ns", of(added, p.Name))
		}
	}
	return of, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
