package question

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/packet"
	"sluice/internal/policy"
	"sluice/internal/program"
	"sluice/internal/reach"
	"sluice/internal/reference"
	"sluice/internal/resolve"
)

// FaultError says that the two judges of packets disagree: the proof, which
// follows the compiled program, and the reference, which reads the policy. It is
// a fault of Sluice.
type FaultError struct {
	Policy  string
	Packet  packet.Packet
	Way     reach.Way
	Program string // what the program makes of the packet
	Meant   string
}

// Error describes the packet, so that the fault can be reported.
func (e *FaultError) Error() string {
	return fmt.Sprintf("this is a fault of Sluice: of one packet the proof says that it is %s, and the policy %s means that it is %s\n"+
		"packet: %s %+v\n"+
		"hint: please report it with the policy; believe neither answer",
		e.Program, e.Policy, e.Meant, e.Way, e.Packet)
}

// agree asks the reference for the verdict of a witness.
func agree(r *resolve.Resolved, p packet.Packet, way reach.Way, v program.Verdict) error {
	var path reference.Path
	for _, arrives := range slices.Backward(arrivals(p, way)) {
		path = follow(r, p, arrives)
		if actionOf(v) == path.Verdict && string(path.Hook) == string(way) {
			return nil
		}
	}
	said := verdictWord(verdictOf(path.Verdict)) + " by " + path.Why
	if string(path.Hook) != string(way) {
		said += " on " + string(path.Hook)
	}
	return &FaultError{Policy: r.Policy.File, Packet: p, Way: way, Program: verdictWord(v), Meant: said}
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

// follow asks the reference about a packet of which connection tracking says
// what its State is, as long as the policy does not keep it out of tracking.
func follow(r *resolve.Resolved, p packet.Packet, way reach.Way) reference.Path {
	asked := p
	asked.State = ""
	// What the kernel never tracks has the state that was said.
	if begins, _ := reference.Begins(p); begins != packet.Untracked {
		if path := reference.Follow(r, asked, way); path.Packet.State == packet.Untracked {
			return path
		}
	}
	return reference.Follow(r, p, way)
}

func actionOf(v program.Verdict) policy.Action {
	switch v {
	case program.Accept:
		return policy.Allow
	case program.Reject:
		return policy.Reject
	}
	return policy.Drop
}

func verdictOf(a policy.Action) program.Verdict {
	switch a {
	case policy.Allow:
		return program.Accept
	case policy.Reject:
		return program.Reject
	}
	return program.Drop
}

// nicer gives a class's witness addresses that a reader does not wonder about,
// where any fit: the first addresses of all are nobody's.
func nicer(u *reach.Universe, c class, of reach.Region) packet.Packet {
	p, within := c.witness, u.And(c.region, of)
	odd := func(a netip.Addr) bool {
		return a.Is4() && a.As4()[0] == 0 || a.Is6() && a.As16()[0] == 0
	}
	try := func(set func(*packet.Packet, netip.Addr), now netip.Addr) {
		if !odd(now) {
			return
		}
		for _, text := range []string{"198.51.100.77", "192.0.2.77", "203.0.113.77", "2001:db8:4d::77"} {
			other := p
			if a := netip.MustParseAddr(text); a.Is4() == now.Is4() {
				if set(&other, a); u.Holds(within, other) {
					p = other
					return
				}
			}
		}
	}
	try(func(p *packet.Packet, a netip.Addr) { p.Source = a }, p.Source)
	try(func(p *packet.Packet, a netip.Addr) { p.Destination = a }, p.Destination)
	return p
}
