package reach

import (
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/bdd"
	"sluice/internal/program"
)

// asked are the fields of what a sender asks for; how he does it is in the others.
var asked = []program.Field{
	program.Protocol, program.ICMPType, program.ICMPv6Type, program.Port, program.Source, program.Destination,
}

// However is the packets of a region and those that differ from one of it in nothing that is
// asked for: not in protocol, ICMP type, port and addresses, nor in what is kept.
func (u *Universe) However(r Region, keep ...program.Field) Region {
	for _, d := range slices.Backward(u.dimensions) {
		if !slices.Contains(asked, d.field) && !slices.Contains(keep, d.field) {
			r = u.space.Exists(r, d.first, d.bits)
		}
	}
	return r
}

// Everything is all packets, of whatever way.
func (u *Universe) Everything() Region { return bdd.Every }

// Sources says of each class of source addresses whether a packet of a region comes from it.
func (u *Universe) Sources(r Region) []bool { return u.project(r, u.by[program.Source]) }

// EachSource calls f for all addresses of one family as sources, in order, with the class that
// they are of.
func (u *Universe) EachSource(is4 bool, f func(from, to addrset.Number, class int)) {
	d := &u.by[program.Source].blocks.parts[1]
	if is4 {
		d = &u.by[program.Source].blocks.parts[0]
	}
	for i, from := range d.starts {
		to := addrset.LastNumber(is4)
		if i+1 < len(d.starts) {
			to = d.starts[i+1].Prev()
		}
		f(from, to, int(d.class[i]))
	}
}
