package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// value is what a packet has in a field; at most one member is used.
type value struct {
	names   []string
	number  uint64
	address netip.Addr
	unknown bool
	absent  bool // the packet has no such field: no value fits, and none is refused
}

var unknown = value{unknown: true}

func number[T uint8 | uint16 | uint32 | int](n T) value { return value{number: uint64(n)} }

// field reads one field of the packet at the hook where it is.
func (e *evaluation) field(f program.Field) value {
	p := &e.packet
	switch f {
	case program.InInterface:
		return e.inInterface(p.In)
	case program.OutInterface:
		return e.outInterface(p.Out)
	case program.Family:
		return number(p.Family())
	case program.Source:
		return source(p.Source)
	case program.Destination:
		return value{address: p.Destination}
	case program.Protocol:
		return number(p.Protocol)
	case program.SourcePort, program.Port:
		return e.port(f)
	case program.ICMPType, program.ICMPCode, program.ICMPv6Type, program.ICMPv6Code:
		return e.icmp(f)
	case program.TCPFlags:
		if p.Protocol != packet.TCP {
			return value{absent: true}
		}
		return number(p.Flags)
	case program.Fragment:
		if p.Fragment {
			return number(1)
		}
		return number(0)
	case program.State:
		return e.state()
	case program.Direction, program.Status, program.OriginalSource, program.OriginalDestination, program.OriginalPort:
		return e.tracked(f)
	case program.Mark:
		return number(p.Mark)
	case program.SourceType:
		return kind(p.Source, p.SourceLocal)
	case program.DestinationType:
		return kind(p.Destination, p.DestinationLocal)
	case program.DestinationHere:
		if p.DestinationLocal == packet.Yes {
			return unknown // local, but perhaps on another interface
		}
		return kind(p.Destination, p.DestinationLocal)
	case program.Owner:
		if e.way != Out || p.Owner < 0 {
			return value{absent: true}
		}
		return value{number: uint64(p.Owner)}
	case program.Time:
		return value{number: uint64(max(p.Moment(), 0))}
	case program.DSCP:
		return number(p.DSCP)
	case program.Length:
		if p.Length == 0 {
			return unknown
		}
		return number(p.Length)
	case program.HopLimit:
		if p.HopLimit == 0 {
			return unknown
		}
		if e.way == Through && (e.hook.kind == program.Forward || e.hook.kind == program.Postrouting) {
			return number(p.HopLimit - 1) // forwarding has taken one (ip6_forward)
		}
		return number(p.HopLimit)
	default:
		return unknown // opaque text, link types, VLANs, extension headers
	}
}

// source is an address that may be anybody's.
func source(a netip.Addr) value {
	if !a.IsValid() {
		return unknown
	}
	return value{address: a}
}

// inInterface: where a packet came in by none, the kernel compares with an empty
// name, which a negation matches (nft_meta_store_ifname).
func (e *evaluation) inInterface(name string) value {
	switch {
	case e.hook.kind == program.Output || e.hook.kind == program.Postrouting && e.way == Out:
		return value{}
	case name == "":
		return unknown
	}
	return value{names: []string{name}}
}

func (e *evaluation) outInterface(name string) value {
	switch {
	case e.hook.kind == program.Prerouting || e.hook.kind == program.Ingress || e.hook.kind == program.Input:
		return value{}
	case name == "":
		return unknown
	}
	return value{names: []string{name}}
}

func (e *evaluation) port(f program.Field) value {
	switch {
	case !e.packet.HasPorts() || e.packet.Fragment && (e.hook.kind == program.Ingress || !assembles(e.program)):
		return value{absent: true}
	case f == program.SourcePort && !e.packet.Source.IsValid():
		return unknown // of whom nothing is known
	case f == program.SourcePort:
		return number(e.packet.SourcePort)
	}
	return number(e.packet.Port)
}

func (e *evaluation) icmp(f program.Field) value {
	want := uint8(packet.ICMP)
	if f == program.ICMPv6Type || f == program.ICMPv6Code {
		want = packet.ICMPv6
	}
	switch {
	case e.packet.Protocol != want:
		return value{absent: true}
	case f == program.ICMPType || f == program.ICMPv6Type:
		return number(e.packet.ICMPType)
	}
	return number(e.packet.ICMPCode)
}

// state is what connection tracking says. Before it, nf_tables takes a packet without a
// connection for invalid (nft_ct_get_eval), and so does conntrack of iptables.
func (e *evaluation) state() value {
	state := e.packet.State
	if e.hook.untracked() && state != packet.Untracked {
		state = packet.Invalid
	}
	if state == "" {
		return unknown
	}
	return value{names: []string{string(state)}}
}

// tracked reads what connection tracking knows of the packet's flow.
func (e *evaluation) tracked(f program.Field) value {
	p := &e.packet
	switch {
	case e.hook.untracked() || p.State == packet.Untracked || p.State == packet.Invalid:
		return value{absent: true}
	case p.State == "":
		return unknown
	}
	original := p.Arrived()
	switch f {
	case program.Direction:
		if p.Reply {
			return value{names: []string{"reply"}}
		}
		return value{names: []string{"original"}}
	case program.OriginalSource:
		return source(original.Source)
	case program.OriginalDestination:
		return value{address: original.Destination}
	case program.OriginalPort:
		return number(original.Port)
	}
	var status []string
	if p.DNAT {
		status = append(status, "dnat")
	}
	if p.SNAT {
		status = append(status, "snat")
	}
	if p.State == packet.Established || p.State == packet.Related {
		status = append(status, "confirmed")
	}
	return value{names: status}
}

// kind is what the routing table says of an address.
func kind(a netip.Addr, local packet.Answer) value {
	switch {
	case a.IsMulticast():
		return value{names: []string{"multicast"}}
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return value{names: []string{"broadcast"}}
	case local == packet.Yes || a.IsLoopback():
		return value{names: []string{"local"}}
	case local == packet.No:
		return value{names: []string{"unicast"}}
	}
	return unknown
}

// condition says whether the packet meets c.
func (e *evaluation) condition(c *program.Condition) packet.Answer {
	var met packet.Answer
	switch {
	case c.Text != "" || c.Field == program.Opaque:
		return packet.Unknown
	case c.Set != "":
		met = e.inSet(c)
	default:
		v := e.field(c.Field)
		if v.absent {
			return packet.No // nor does a negation match what is not there
		}
		met = e.plain(c, v)
		if v.unknown && e.onlyLoopback(c) {
			met = packet.No
		}
	}
	if met != packet.Unknown && c.Not {
		return packet.Is(met == packet.No)
	}
	return met
}

// onlyLoopback holds for a condition on the loopback interface and a packet that
// cannot have come by it: the host's own packets alone do.
func (e *evaluation) onlyLoopback(c *program.Condition) bool {
	return c.Field == program.InInterface && e.packet.SourceLocal == packet.No &&
		len(c.Names) == 1 && c.Names[0] == "lo"
}

func (e *evaluation) plain(c *program.Condition, v value) packet.Answer {
	switch {
	case v.unknown:
		return packet.Unknown
	case len(c.Names) > 0:
		return packet.Is(slices.ContainsFunc(c.Names, func(want string) bool { return e.followed(c.Field, want, v.names) }) || slices.ContainsFunc(c.Names, func(want string) bool { return hasName(v.names, want) }))
	case len(c.Numbers) > 0:
		n := v.number
		if c.Mask != 0 {
			n &= c.Mask
		}
		return packet.Is(slices.ContainsFunc(c.Numbers, func(r program.NumberRange) bool { return within(r, n) }))
	default:
		return packet.Is(slices.ContainsFunc(c.Addresses, func(r addrset.Range) bool { return r.Contains(v.address) }))
	}
}

// followed says whether an interface is one that the host decides on: by what the
// packet takes for granted, else by what the program's set holds.
func (e *evaluation) followed(f program.Field, want string, have []string) bool {
	set, is := program.FollowedName(want)
	if !is || len(have) == 0 {
		return false
	}
	assumed := e.packet.InRoute
	if f == program.OutInterface {
		assumed = e.packet.OutRoute
	}
	if assumed != packet.Unknown {
		return assumed == packet.Yes
	}
	return slices.Contains(e.program.Set(set).Held().Names, have[0])
}

// own says whether an address of the packet is one of the host's, of all or of those in a
// zone: by what routing says of it and what the packet takes for granted, else by what
// the program's set holds.
func (e *evaluation) own(set *program.Set, zone string, f program.Field) packet.Answer {
	p := &e.packet
	a, local := p.Destination, p.DestinationLocal
	if f == program.Source {
		a, local = p.Source, p.SourceLocal
	}
	switch assumed := p.Own.In(zone); {
	case zone == "" && local != packet.Unknown:
		return local
	case zone != "" && assumed != packet.Unknown:
		return assumed
	}
	return packet.Is(slices.Contains(set.Held().Addresses, a))
}

func hasName(have []string, want string) bool {
	prefix, wildcard := strings.CutSuffix(want, "*")
	return slices.ContainsFunc(have, func(name string) bool {
		return name == want || wildcard && strings.HasPrefix(name, prefix)
	})
}

func within(r program.NumberRange, n uint64) bool { return r.From <= n && n <= r.To }

// key is what the packet has in the fields; not ok where it lacks one.
func (e *evaluation) key(fields []program.Field) (key []value, ok bool) {
	key = make([]value, len(fields))
	for i, f := range fields {
		key[i] = e.field(f)
		if key[i].absent {
			return nil, false
		}
	}
	return key, true
}

// inSet looks the packet's key up.
func (e *evaluation) inSet(c *program.Condition) packet.Answer {
	set := e.program.Set(c.Set)
	if set == nil {
		return packet.Unknown
	}
	fields := c.SetKey
	if len(fields) == 0 {
		fields = []program.Field{c.Field}
	}
	key, ok := e.key(fields)
	if !ok {
		return packet.No
	}
	switch set.Life {
	case program.Dynamic:
		if set.Others && (set.Addresses.Contains(key[0].address) || e.packet.Filled.Fills(set.ID, key[0].address)) {
			e.assume("another program has it in set " + set.ID + ", as now")
			return packet.Yes
		}
		if set.Others {
			e.assume("no other program puts it into set " + set.ID)
			return packet.No
		}
		e.assume("the kernel's table " + set.ID + " does not hold it")
		return packet.No
	case program.Followed:
		if zone, own := program.CutOwnSet(set.ID); own {
			return e.own(set, zone, fields[0])
		}
		e.assume("it is not in " + set.ID + ", which follows the host")
		return packet.No
	case program.Static, program.Living:
	}
	if !set.Addresses.IsEmpty() {
		if key[0].unknown {
			return packet.Unknown
		}
		return packet.Is(set.Addresses.Contains(key[0].address))
	}
	_, answer := element(set, key)
	return answer
}

// element finds the element that the key is; unknown where it may be one.
func element(set *program.Set, key []value) (*program.Element, packet.Answer) {
	doubt := false
	for i := range set.Elements {
		switch fits(&set.Elements[i], key) {
		case packet.Yes:
			return &set.Elements[i], packet.Yes
		case packet.Unknown:
			doubt = true
		}
	}
	if doubt {
		return nil, packet.Unknown
	}
	return nil, packet.No
}

func fits(t *program.Element, key []value) packet.Answer {
	answer := packet.Yes
	for i, part := range t.Parts {
		if i >= len(key) {
			break
		}
		if key[i].unknown {
			answer = packet.Unknown
			continue
		}
		var same bool
		switch {
		case part.Name != "":
			same = hasName(key[i].names, part.Name)
		case part.Addresses.From.IsValid():
			same = part.Addresses.Contains(key[i].address)
		default:
			same = within(part.Numbers, key[i].number)
		}
		if !same {
			return packet.No
		}
	}
	return answer
}

// question is an unknown condition without its negation, for the reader and to
// give equal conditions equal answers.
func question(c *program.Condition, r *program.Rule) string {
	switch {
	case c.Text != "":
		return fmt.Sprintf("%s: %s", place(r), c.Text)
	case c.Set != "":
		return fmt.Sprintf("%s: %s is in %s", place(r), c.Field, c.Set)
	case len(c.Names) > 0:
		names := strings.Join(c.Names, " or ")
		return fmt.Sprintf("%s is %s", c.Field, strings.ReplaceAll(names, program.DefaultRoute, "the default route's"))
	default:
		return fmt.Sprintf("%s: %s", place(r), c.Field)
	}
}
