package reach

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/bdd"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// view is how a hook of a program sees packets that have been changed.
type view struct {
	u       *Universe
	program *program.Program
	way     Way
	kind    program.HookKind
	raw     bool // before connection tracking
	change  *change
}

func (u *Universe) view(p *program.Program, way Way) *view {
	kind := program.Input
	switch way {
	case Through:
		kind = program.Forward
	case Out:
		kind = program.Output
	}
	return &view{u: u, program: p, way: way, kind: kind, change: &change{}}
}

// values is what a field is asked for; one member is used.
type values struct {
	names     []string
	numbers   []program.NumberRange
	mask      uint64
	addresses *addrset.Set
}

// condition is the packets that meet a condition.
func (v *view) condition(c *program.Condition) Region {
	s := v.u.space
	var present, met Region
	switch {
	case c.Text != "" || c.Field == program.Opaque:
		present, met = bdd.Every, v.u.flag(opaqueField(c.Text))
	case c.Set != "":
		set, key := v.program.Set(c.Set), setKey(c)
		if set == nil {
			return bdd.None
		}
		present = bdd.Every
		for _, f := range key {
			present = s.And(present, v.present(f))
		}
		met = v.inSet(set, key)
		if slices.ContainsFunc(key, v.nameless) {
			met = bdd.None
		}
	case c.Field == program.Extension:
		present, met = v.present(c.Field), v.u.flag(extensionField(c))
	case c.Field == program.Mark && c.Mask != 0:
		present, met = bdd.Every, v.u.flag(markField(c))
		if behind, known := v.marked(values{numbers: c.Numbers, mask: c.Mask}); known {
			met = behind
		}
	default:
		of := values{names: c.Names, numbers: c.Numbers, mask: c.Mask}
		if isAddress(c.Field) {
			ranges := addrset.Of(c.Addresses...)
			of.addresses = &ranges
		}
		present, met = v.present(c.Field), v.has(c.Field, of)
	}
	if c.Not {
		return s.Minus(present, met)
	}
	return s.And(present, met)
}

// present is the packets that have such a field at all: of what is not there, a
// condition does not hold, nor its negation.
func (v *view) present(f program.Field) Region {
	u, s := v.u, v.u.space
	first := func(r Region) Region { // later fragments carry no header of the protocol
		if u.by[program.Fragment] == nil || u.assembled && v.kind != program.Ingress {
			return r
		}
		d := u.by[program.Fragment]
		return s.Minus(r, d.region(s, d.ofNumbers([]program.NumberRange{{From: 1, To: 1}})))
	}
	switch f {
	case program.Port, program.SourcePort:
		d := u.by[program.Protocol]
		return first(d.region(s, d.ofNumbers([]program.NumberRange{
			{From: packet.TCP, To: packet.TCP},
			{From: packet.UDP, To: packet.UDP},
			{From: 33, To: 33},
			{From: packet.SCTP, To: packet.SCTP},
			{From: 136, To: 136},
		})))
	case program.ICMPType, program.ICMPCode:
		return first(u.protocol(packet.ICMP))
	case program.ICMPv6Type, program.ICMPv6Code:
		return first(u.protocol(packet.ICMPv6))
	case program.TCPFlags:
		return first(u.protocol(packet.TCP))
	case program.HopLimit, program.Extension:
		return u.sixth(program.Source)
	case program.Direction, program.Status, program.OriginalSource, program.OriginalDestination, program.OriginalPort:
		if v.raw || v.change.untracked {
			return bdd.None
		}
		return u.named(program.State, "new", "established", "related")
	case program.Owner:
		if v.way != Out {
			return bdd.None
		}
		d := u.by[program.Owner]
		return s.Not(d.region(s, one(d.class(noOwner), d.classes)))
	}
	return bdd.Every
}

// nameless says that the field is an interface where the packet has none: the
// kernel compares with an empty name, which a negation matches
// (nft_meta_store_ifname).
func (v *view) nameless(f program.Field) bool {
	switch f {
	case program.InInterface:
		return v.kind == program.Output || v.kind == program.Postrouting && v.way == Out
	case program.OutInterface:
		return v.kind == program.Prerouting || v.kind == program.Ingress || v.kind == program.Input
	}
	return false
}

// has is the packets whose field, which is there, has one of the values.
func (v *view) has(f program.Field, of values) Region {
	u, s := v.u, v.u.space
	if v.nameless(f) {
		return bdd.None
	}
	if f == program.InInterface || f == program.OutInterface {
		return v.interfaces(f, of.names)
	}
	switch f {
	case program.Family:
		return v.family(of.numbers)
	case program.State:
		return v.state(of.names)
	case program.Status:
		return v.status(of.names)
	case program.Source:
		return v.address(f, *of.addresses, v.change.source)
	case program.Destination:
		return v.address(f, *of.addresses, v.change.destination)
	case program.OriginalSource:
		return v.original(f, program.Source, func(f program.Field) Region { return u.inAddresses(f, *of.addresses) })
	case program.OriginalDestination:
		return v.original(f, program.Destination, func(f program.Field) Region { return u.inAddresses(f, *of.addresses) })
	case program.OriginalPort:
		return v.original(f, program.Port, func(f program.Field) Region { return u.numbers(f, of) })
	case program.Port:
		if v.change.port != nil {
			return every(slices.ContainsFunc(of.numbers, func(r program.NumberRange) bool { return within(r, uint64(*v.change.port)) }))
		}
	case program.DestinationType, program.DestinationHere:
		if len(v.change.destination) > 0 {
			return v.kindBehind(of.names)
		}
	case program.HopLimit:
		if v.way == Through && (v.kind == program.Forward || v.kind == program.Postrouting) {
			of.numbers = beforeForwarding(of.numbers)
		}
	case program.Mark:
		if behind, known := v.marked(of); known {
			return behind
		}
	}
	d := u.by[f]
	if d.kind == numeric {
		return u.numbers(f, of)
	}
	return d.region(s, d.ofNames(of.names))
}

// interfaces is the packets whose interface has one of the names, or is one that the
// host decides on: no name is known to be such or not to be.
func (v *view) interfaces(f program.Field, want []string) Region {
	u := v.u
	out := bdd.None
	var plain []string
	for _, n := range want {
		if _, followed := program.FollowedName(n); followed {
			out = u.space.Or(out, u.flag(followedField(f, n)))
		} else {
			plain = append(plain, n)
		}
	}
	d := u.by[f]
	return u.space.Or(out, d.region(u.space, d.ofNames(plain)))
}

// beforeForwarding is the hop limits with which packets came that have these once
// they are forwarded, which takes one (ip6_forward).
func beforeForwarding(ranges []program.NumberRange) []program.NumberRange {
	var out []program.NumberRange
	for _, r := range ranges {
		if r.From < most[program.HopLimit] {
			out = append(out, program.NumberRange{From: r.From + 1, To: min(r.To+1, most[program.HopLimit])})
		}
	}
	return out
}

func every(is bool) Region {
	if is {
		return bdd.Every
	}
	return bdd.None
}

func (u *Universe) numbers(f program.Field, of values) Region {
	d := u.by[f]
	if of.mask != 0 {
		return d.region(u.space, d.underMask(of.numbers, of.mask))
	}
	return d.region(u.space, d.ofNumbers(of.numbers))
}

func (v *view) family(want []program.NumberRange) Region {
	six := v.u.sixth(program.Source)
	out := bdd.None
	for _, r := range want {
		if within(r, 4) {
			out = v.u.space.Or(out, v.u.space.Not(six))
		}
		if within(r, 6) {
			out = v.u.space.Or(out, six)
		}
	}
	return out
}

// state is what connection tracking says. Before it, nf_tables takes a packet
// without a connection for invalid (nft_ct_get_eval).
func (v *view) state(names []string) Region {
	switch untracked := v.u.named(program.State, "untracked"); {
	case v.change.untracked:
		return every(slices.Contains(names, "untracked"))
	case v.raw:
		out := bdd.None
		if slices.Contains(names, "untracked") {
			out = untracked
		}
		if slices.Contains(names, "invalid") {
			out = v.u.space.Or(out, v.u.space.Not(untracked))
		}
		return out
	}
	return v.u.named(program.State, names...)
}

func (v *view) status(names []string) Region {
	out := bdd.None
	for _, n := range names {
		if n == "dnat" && v.change.dnat || n == "snat" && v.change.snat {
			return bdd.Every
		}
		out = v.u.space.Or(out, v.u.flag(statusField(n)))
	}
	return out
}

// original is what a flow was before it was rewritten: of one that begins the
// packet's own, unless another tool has rewritten it.
func (v *view) original(f, of program.Field, in func(program.Field) Region) Region {
	s := v.u.space
	if v.change.dnat || v.change.snat {
		return in(of)
	}
	own := s.Minus(v.u.begins(), v.u.rewritten())
	return s.Or(s.And(own, in(of)), s.Minus(in(f), own))
}

// rewritten is the packets that somebody has rewritten, as far as that is told apart.
func (u *Universe) rewritten() (out Region) {
	for _, status := range []string{"dnat", "snat"} {
		if u.by[statusField(status)] != nil {
			out = u.Or(out, u.flag(statusField(status)))
		}
	}
	return out
}

// address is the packets whose address is in a set behind its rewriting.
func (v *view) address(f program.Field, set addrset.Set, steps []step) Region {
	if len(steps) == 0 {
		return v.u.inAddresses(f, set)
	}
	d := v.u.by[f]
	in := make([]bool, d.classes)
	for class := range in {
		if a := apply(d.blocks.example(class), steps); a.IsValid() {
			in[class] = set.Contains(a)
		}
	}
	return d.region(v.u.space, in)
}

// kindBehind is what the routing table says of a destination that was rewritten:
// the way that the packet takes says it.
func (v *view) kindBehind(names []string) Region {
	if v.way == In {
		return every(slices.Contains(names, "local"))
	}
	return every(slices.Contains(names, "unicast"))
}

// marked asks a mark that was written; false where what is asked for was not. Of
// what was written in part nobody knows the rest (scanMarks).
func (v *view) marked(of values) (met Region, known bool) {
	var written, value uint32
	for _, m := range v.change.mark {
		under := m.Mask
		written |= under
		value = value&^under | m.Value&under
	}
	mask := maskOf(of.mask)
	if written&mask != mask {
		return bdd.None, false
	}
	return every(slices.ContainsFunc(of.numbers, func(r program.NumberRange) bool { return within(r, uint64(value&mask)) })), true
}

// inSet is the packets whose key is in a set.
func (v *view) inSet(set *program.Set, key []program.Field) Region {
	u := v.u
	zone, own := program.CutOwnSet(set.ID)
	switch {
	case own && set.Life == program.Followed:
		return v.own(zone, key[0])
	case set.Life == program.Dynamic || set.Life == program.Followed:
		if slices.ContainsFunc(key, v.rewritten) {
			return u.flag(tableBehind(set, key))
		}
		return u.flag(tableField(set, key))
	case len(set.Elements) == 0 && len(key) == 1 && isAddress(key[0]):
		return v.has(key[0], values{addresses: &set.Addresses})
	}
	all := make([]int, len(set.Elements))
	for i := range all {
		all[i] = i
	}
	return v.elements(set, key, all)
}

// own is the packets of which an address is one of the host's own: of all of them
// routing says so, of those in a zone nothing is known but where the answer is of now.
func (v *view) own(zone string, f program.Field) Region {
	switch {
	case zone == "":
		return v.has(kindOf(f), values{names: []string{"local"}})
	case v.u.now:
		return v.address(f, v.u.owned[zone], v.change.destination)
	case v.rewritten(f):
		return v.u.flag(ownBehind(zone))
	}
	return v.u.flag(ownField(zone))
}

// elements is the packets whose key is one of some elements, which are places in
// the set's own list.
func (v *view) elements(set *program.Set, key []program.Field, which []int) Region {
	if len(key) == 1 {
		return v.simple(set, key[0], which)
	}
	// Those that differ in the first field alone are one, and so on.
	groups := map[string][]int{}
	var orderOf []string
	for _, i := range which {
		var rest strings.Builder
		for _, part := range set.Elements[i].Parts[1:] {
			rest.WriteString(part.String() + " . ")
		}
		if groups[rest.String()] == nil {
			orderOf = append(orderOf, rest.String())
		}
		groups[rest.String()] = append(groups[rest.String()], i)
	}
	regions := make([]Region, 0, len(orderOf))
	for _, k := range orderOf {
		list := groups[k]
		r := v.simple(set, key[0], list)
		for j, part := range set.Elements[list[0]].Parts[1:] {
			if j+1 < len(key) {
				r = v.u.space.And(r, v.has(key[j+1], valueOf(part)))
			}
		}
		regions = append(regions, r)
	}
	return v.either(regions)
}

// rewritten says whether a field is not as it came any more.
func (v *view) rewritten(f program.Field) bool {
	switch f {
	case program.Source:
		return len(v.change.source) > 0
	case program.Destination:
		return len(v.change.destination) > 0
	case program.Port:
		return v.change.port != nil
	}
	return false
}

// either joins regions by halves, which keeps what is joined small.
func (v *view) either(regions []Region) Region {
	switch len(regions) {
	case 0:
		return bdd.None
	case 1:
		return regions[0]
	}
	half := len(regions) / 2
	return v.u.space.Or(v.either(regions[:half]), v.either(regions[half:]))
}

// simple is the packets of which one field is as some elements have it first.
func (v *view) simple(set *program.Set, f program.Field, which []int) Region {
	var of values
	if isAddress(f) {
		return v.addressOf(set, f, which)
	}
	for _, i := range which {
		part := set.Elements[i].Parts[0]
		if part.Name != "" {
			of.names = append(of.names, part.Name)
		} else {
			of.numbers = append(of.numbers, part.Numbers)
		}
	}
	return v.has(f, of)
}

func (v *view) addressOf(set *program.Set, f program.Field, which []int) Region {
	var all addrset.Builder
	for _, i := range which {
		if r := set.Elements[i].Parts[0].Addresses; r.From.IsValid() {
			all.AddRange(r)
		}
	}
	joined := all.Set()
	return v.has(f, values{addresses: &joined})
}

func valueOf(part program.Value) values {
	switch {
	case part.Name != "":
		return values{names: []string{part.Name}}
	case part.Addresses.From.IsValid():
		s := addrset.Of(part.Addresses)
		return values{addresses: &s}
	}
	return values{numbers: []program.NumberRange{part.Numbers}}
}
