package query

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// FaultError says that the two judges of packets disagree: the proof, which
// follows the compiled program, and the reference, which reads the policy. It is
// a bug in Sluice.
type FaultError struct {
	Policy  string
	Packet  packet.Packet
	Way     reach.Way
	Program string // what the program makes of the packet
	Meant   string
}

// Error describes the packet, so that the fault can be reported.
func (e *FaultError) Error() string {
	return fmt.Sprintf("trust neither answer: of one packet the proof says that it is %s, and the policy %s means that it is %s\n"+
		"packet: %s %+v",
		e.Program, e.Policy, e.Meant, e.Way, e.Packet)
}

// OfSluice says that the bug is not in the policy.
func (*FaultError) OfSluice() {}

// agree asks the reference for the verdict of a witness.
func agree(r *resolve.Resolved, p packet.Packet, way reach.Way, v program.Verdict) error {
	var path reference.Path
	for _, arrives := range slices.Backward(arrivals(p, way)) {
		path = Follow(r, p, arrives)
		if ActionOf(v) == path.Verdict && string(path.Hook) == string(way) {
			return nil
		}
	}
	said := path.Verdict.Done() + " by " + path.Why
	if string(path.Hook) != string(way) {
		said += " on " + string(path.Hook)
	}
	return &FaultError{Policy: r.Policy.File, Packet: p, Way: way, Program: ActionOf(v).Done(), Meant: said}
}

// arrivals are the ways that a packet may seem to have before its destination is
// rewritten, of one that has this way in the end.
func arrivals(p packet.Packet, way reach.Way) []reach.Way {
	switch {
	case way == reach.Through && p.DestinationLocal == packet.Yes:
		return []reach.Way{reach.In}
	case way == reach.In && p.DestinationLocal != packet.Yes:
		return []reach.Way{reach.In, reach.Through} // to all of a network, or rewritten
	}
	return []reach.Way{way}
}

// Follow asks the reference about a packet of which connection tracking says
// what its State is, as long as the policy does not keep it out of tracking.
func Follow(r *resolve.Resolved, p packet.Packet, way reach.Way) reference.Path {
	if !p.DNAT && !p.SNAT && reference.Untracks(r, p, way) {
		p.State = packet.Untracked
	}
	return reference.Follow(r, p, way)
}

// ActionOf is a verdict as a rule says it.
func ActionOf(v program.Verdict) policy.Action {
	switch v {
	case program.Accept:
		return policy.Allow
	case program.Reject:
		return policy.Reject
	}
	return policy.Drop
}

// nicer gives a class's witness what a reader does not wonder about.
func nicer(u *reach.Universe, c class, of reach.Region, facts host.Facts) packet.Packet {
	return Natural(u, u.And(c.region, of), c.witness, c.way, facts)
}

// examples are addresses for documentation (RFC 5737, RFC 3849).
var examples = []netip.Addr{
	netip.MustParseAddr("198.51.100.77"),
	netip.MustParseAddr("192.0.2.77"),
	netip.MustParseAddr("203.0.113.77"),
	netip.MustParseAddr("2001:db8:4d::77"),
}

func odd(a netip.Addr) bool { return a.Is4() && a.As4()[0] == 0 || a.Is6() && a.As16()[0] == 0 }
