package limits

import (
	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
)

// peer is one way to have "drop what comes from the set" in the input hook of a
// lab, and nothing else.
type peer struct {
	name string
	load func(b *bench, l *measure.Lab, blocked addrset.Set) error
	// both is for peers that have the addresses of both families, as in a policy;
	// the others have those of the family that is measured.
	both bool
}

// Names that the figures refer to.
const (
	bare     = "no rules"
	oneSet   = "one interval set"
	oneAgain = "one interval set, again"
	ours     = "sluice"

	byHand      = "one interval set behind ct state, by hand"
	wholePolicy = "sluice, a whole policy with that rule"
)

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

// loadByHand is what one writes by hand around the sets: connections first.
func loadByHand(b *bench, l *measure.Lab, s addrset.Set) error {
	m := peers.Blocked(s)
	m.Bare = false
	return loadPeer(b, l, "nftables-set", m)
}

// singleSet is the ruleset that most people write: everything in one set a family.
func singleSet(s addrset.Set) []byte {
	found, err := peers.Named("nftables-set")
	if err != nil {
		panic(err)
	}
	return []byte(found[0].Text(peers.Blocked(s)))
}

func loadNothing(*bench, *measure.Lab, addrset.Set) error { return nil }
