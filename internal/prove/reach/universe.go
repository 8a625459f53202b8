package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/bdd"
	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// Region is a set of packets of one [Universe]; the zero value is empty. Regions
// of a universe that compare equal hold the same packets.
type Region = bdd.Region

// Universe tells packets apart by every boundary of the programs and questions
// that it was made of, and by nothing else: what it says of one packet of a class
// holds for all of them. A packet is as it arrives, or as a local socket sends
// it, with what connection tracking says of it. Of a flow that exists the
// addresses are those behind its rewriting, as filter chains see them.
//
// Assumed: no ICMP in IPv6 nor ICMPv6 in IPv4, both addresses of
// one family, of one packet one answer to each condition, and no later fragments
// where a program asks connection tracking, which puts them together before any
// chain but those of devices sees them (nf_defrag_ipv4, nf_defrag_ipv6).
type Universe struct {
	space      *bdd.Space
	dimensions []*dimension // by level
	by         map[program.Field]*dimension
	maps       []mapping
	own        addrset.Set
	elsewhere  bool
	here       map[string]addrset.Set
	banned     Region // from or to an address of a ban
	bannedFrom Region
	bannedTo   Region
	// untracksLoopback says that a program keeps the host's talk to itself out of
	// tracking on its way out.
	untracksLoopback bool
	// assembled says that of every program packets are put together behind ingress.
	assembled    bool
	labels       map[uint8]bool // bits that each program turns on
	domains      map[Way]Region
	treatment    map[treatedKey][]Outcome
	opaque       []string
	apart        []string
	now          bool
	followed     map[string]bool        // interfaces that a default route left by when the programs were made
	ownsLoopback bool                   // a zone with such a set has loopback
	owned        map[string]addrset.Set // what sets of the host's own addresses held then, by zones
}

// Options of a universe.
type Options struct {
	// Own is the host's own addresses; empty where nobody knows them. Where they
	// are known, what comes in is for one of them, for loopback, multicast or
	// 255.255.255.255; packets for the broadcast addresses of its networks, which
	// only who is in them can send, are left out.
	Own addrset.Set
	// Elsewhere says that what NAT leads to is none of the host's addresses where
	// Own does not say it; otherwise both ways of such a packet are looked at.
	Elsewhere bool
	// Here is the addresses of each interface, where they are known: others are
	// not local to a packet that comes in by it.
	Here map[string]addrset.Set
	// Apart are names and wildcards of interfaces that no default route leaves by.
	Apart []string
	// Now is for what is said of the host as it was when the programs were made: default
	// routes leave by the interfaces that they left by then.
	Now bool
	// Questions are what regions will be asked for.
	Questions []Question
	// Settled leaves out what cannot be met while a policy runs, and what an
	// optimizer may therefore treat in another way: packets of established flows
	// whose addresses are in a set of the programs' bans, since these flows are
	// deleted; packets that come in for such an address though it is not the
	// host's, for one that all of a network hear, multicast and what goes out by lo,
	// neither of which is ever banned, nor is what the host itself sends by lo to be
	// forwarded; tracked packets from loopback to loopback that come in by lo, where
	// a program keeps such out of tracking when they go out; packets of connections
	// with a label that one of the programs never turns on: where another does, for a
	// packet that there is, that packet is the difference.
	Settled bool
	// Stop ends whatever asks the universe when it is closed; nil is never.
	Stop <-chan struct{}
}

// Question is some packets; zero members are anything.
type Question struct {
	Way      Way
	States   []packet.State // what connection tracking says; New includes what will bypass it
	From, To *addrset.Set
	// Match is alternatives, in each of which all conditions have to hold; they
	// ask for no sets.
	Match [][]program.Condition
}

// mostNodes bounds the nodes of one universe: 12 bytes each, and as much again.
const mostNodes = 1 << 25

// Reasons for which a question has no answer; see [Guard].
var (
	ErrTooLarge = bdd.ErrTooLarge
	ErrStopped  = bdd.ErrStopped
)

// Guard runs f, which asks universes, and gives ErrTooLarge where that would take
// more memory than a universe may have (about 1 GiB), or ErrStopped. Behind either
// the universe is still right, but f has not come to its end.
func Guard(f func()) error { return bdd.Guard(f) }

// NewUniverse makes the classes of what the programs and questions tell apart.
func NewUniverse(o Options, programs ...*program.Program) *Universe {
	u := &Universe{
		by: map[program.Field]*dimension{}, own: o.Own, elsewhere: o.Elsewhere, here: o.Here, domains: map[Way]Region{}, treatment: map[treatedKey][]Outcome{},
		followed: map[string]bool{}, owned: map[string]addrset.Set{}, now: o.Now,
	}
	for _, f := range []program.Field{program.State, program.Protocol, program.TCPFlags, program.Source, program.Destination, program.Port, program.SourcePort} {
		u.dimension(f)
	}
	for _, p := range programs {
		for i := range p.Chains {
			for j := range p.Chains[i].Rules {
				u.scanRule(p, &p.Chains[i].Rules[j])
			}
		}
		for _, h := range p.Hooks {
			if text := fmt.Sprintf("the chain %s at %s %s", h.Chain, h.Kind, h.Phase); !followed(h) && !slices.Contains(u.opaque, text) {
				u.opaque = append(u.opaque, text)
			}
			for _, d := range h.Devices {
				u.dimension(program.InInterface).name(d)
			}
		}
	}
	for _, q := range o.Questions {
		u.scanQuestion(q)
	}
	if o.Settled {
		for _, p := range programs {
			u.scanBanned(p)
		}
	}
	for _, p := range programs {
		u.scanFollowed(p)
	}
	u.scanApart(o.Apart)
	u.scanFragments(programs)
	u.scanMarks(programs)
	u.scanKinds()
	u.scanMaps()
	u.settle()
	u.space.Stop = o.Stop
	if o.Settled {
		for i, p := range programs {
			u.noteBanned(p)
			u.untracksLoopback = u.untracksLoopback || untracksLoopback(p)
			labels := p.Labels()
			if i == 0 {
				u.labels = labels
			}
			maps.DeleteFunc(u.labels, func(bit uint8, _ bool) bool { return !labels[bit] })
		}
	}
	return u
}

// dimension gives the dimension of a field and makes it where there is none.
func (u *Universe) dimension(f program.Field) *dimension {
	if d := u.by[f]; d != nil {
		return d
	}
	d := &dimension{field: f}
	switch {
	case f == program.InInterface || f == program.OutInterface:
		d.kind = devices
	case lists[f] != nil:
		d.kind, d.names = words, slices.Clone(lists[f])
	case isAddress(f):
		d.kind, d.blocks = addresses, &blocks{}
		d.blocks.add(addrset.All().Only6())
	case most[f] > 0:
		d.kind, d.most = numeric, most[f]
	default:
		d.kind = flag
	}
	switch f {
	case program.TCPFlags:
		for n := range uint64(256) {
			d.starts = append(d.starts, n)
		}
	case program.Owner:
		d.cut(program.NumberRange{From: noOwner, To: noOwner})
	case program.Protocol:
		for _, n := range []uint64{packet.ICMP, packet.TCP, packet.UDP, 33, packet.ICMPv6, packet.SCTP, 136} {
			d.cut(program.NumberRange{From: n, To: n})
		}
	}
	u.by[f] = d
	u.dimensions = append(u.dimensions, d)
	return d
}

func isAddress(f program.Field) bool {
	switch f {
	case program.Source, program.Destination, program.OriginalSource, program.OriginalDestination:
		return true
	}
	return false
}

// settle gives every dimension its bits.
func (u *Universe) settle() {
	for _, f := range originals {
		if d := u.by[f.original]; d != nil && d.kind == addresses {
			for _, s := range d.blocks.sets {
				u.by[f.own].blocks.add(s)
			}
		} else if d != nil {
			u.by[f.own].starts = append(u.by[f.own].starts, d.starts...)
		}
	}
	place := func(d *dimension) int {
		f := d.field
		if strings.HasPrefix(string(f), string(statusField(""))) {
			f = statusField("")
		}
		if i := slices.Index(order, f); i >= 0 {
			return i
		}
		return len(order)
	}
	sorting.StableBy(u.dimensions, func(a, b *dimension) int { return place(a) - place(b) })
	bits := 0
	for _, d := range u.dimensions {
		d.settle()
		d.first = bits
		bits += d.bits
	}
	u.space = bdd.New(bits, mostNodes)
}

// And is what is in both regions.
func (u *Universe) And(a, b Region) Region { return u.space.And(a, b) }

// Or is what is in either region.
func (u *Universe) Or(a, b Region) Region { return u.space.Or(a, b) }

// Minus is what is in a and not in b.
func (u *Universe) Minus(a, b Region) Region { return u.space.Minus(a, b) }

// Empty says whether a region of [Universe.Outcomes], or a part of one, has no
// packet.
func (u *Universe) Empty(r Region) bool { return r == bdd.None }

// Opaque is the conditions that nobody can decide, each of which was taken to be
// true of some packets and false of others: what is proved holds either way, but
// only as far as the same text means the same.
func (u *Universe) Opaque() []string { return u.opaque }

// Region is the packets of a question, whose boundaries the universe knows.
func (u *Universe) Region(q Question) Region {
	out := u.all(q.Way)
	if len(q.States) > 0 {
		names := make([]string, len(q.States))
		for i, s := range q.States {
			names[i] = string(s)
		}
		d := u.by[program.State]
		out = u.And(out, d.region(u.space, d.ofNames(names)))
	}
	for f, s := range map[program.Field]*addrset.Set{program.Source: q.From, program.Destination: q.To} {
		if s != nil {
			out = u.And(out, u.inAddresses(f, *s))
		}
	}
	if len(q.Match) == 0 {
		return out
	}
	v := u.view(&program.Program{}, q.Way)
	fits := bdd.None
	for _, conditions := range q.Match {
		all := bdd.Every
		for i := range conditions {
			all = u.And(all, v.condition(&conditions[i]))
		}
		fits = u.Or(fits, all)
	}
	return u.And(out, fits)
}

func (u *Universe) inAddresses(f program.Field, s addrset.Set) Region {
	d := u.by[f]
	return d.region(u.space, d.blocks.of(s))
}

// families is the packets whose field is of IPv6.
func (u *Universe) sixth(f program.Field) Region {
	d := u.by[f]
	return d.region(u.space, d.blocks.six)
}

func (u *Universe) protocol(n uint64) Region {
	d := u.by[program.Protocol]
	return d.region(u.space, one(d.class(n), d.classes))
}

func (u *Universe) named(f program.Field, names ...string) Region {
	d := u.by[f]
	return d.region(u.space, d.ofNames(names))
}

func (u *Universe) flag(f program.Field) Region {
	d := u.by[f]
	return d.region(u.space, []bool{false, true})
}

// addressesOf is a set's addresses, whatever form it has.
func addressesOf(s *program.Set) addrset.Set {
	var b addrset.Builder
	b.AddSet(s.Addresses)
	for _, e := range s.Elements {
		if len(e.Parts) > 0 && e.Parts[0].Addresses.From.IsValid() {
			b.AddRange(e.Parts[0].Addresses)
		}
	}
	return b.Set()
}
