package query

import (
	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/prove/reach"
)

// Describe says which packets a region has that is not Query's, for the command
// test. Care holds all packets that the reader has in mind: what goes for all of
// them needs no word, nor do the states. Names are those of the policy. To, unless
// nil, is all that these packets can have as their destination.
func Describe(c Compiled, u *reach.Universe, names *Names, states []packet.State, way reach.Way, r, care reach.Region, to *addrset.Set) []Traffic {
	say := newWording(u, names, states, c)
	var out []Traffic
	for _, class := range say.classes(way, r, reach.Among{All: care}) {
		if to != nil && class.to != nil {
			left := class.to.Intersect(*to)
			class.to = &left
		}
		out = append(out, say.traffic(class))
	}
	return out
}
