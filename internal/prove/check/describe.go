package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// describe says in words which packets of a hook boxes are, a few of them, by what
// tells them from others of which they are parts.
func (c *checker) describe(hook policy.Hook, boxes, parts []box) string {
	const most = 3
	families := map[string][]int{} // of each text
	var texts []string
	for i := range boxes {
		whole := c.universe(hook, familyOfBox(&boxes[i]))
		if at := slices.IndexFunc(parts, func(p box) bool { return p.overlaps(&boxes[i]) }); at >= 0 {
			whole = parts[at]
		}
		text := c.describeBox(&boxes[i], &whole)
		if len(families[text]) == 0 {
			texts = append(texts, text)
		}
		if f := familyOfBox(&boxes[i]); !slices.Contains(families[text], f) {
			families[text] = append(families[text], f)
		}
	}
	ofBoth := slices.ContainsFunc(parts, func(p box) bool { return familyOfBox(&p) != familyOfBox(&parts[0]) })
	for i, text := range texts {
		if !ofBoth {
			break
		}
		// Addresses tell the family by themselves.
		if f := families[text]; len(f) == 1 && !strings.Contains(text, "from ") && !strings.Contains(text, "to ") {
			texts[i] = strings.TrimSpace(fmt.Sprintf("%s over IPv%d", text, f[0]))
		}
	}
	if len(texts) > most {
		return strings.Join(texts[:most], "; ") + fmt.Sprintf("; and %d more parts", len(texts)-most)
	}
	return strings.Join(texts, "; ")
}

func (c *checker) describeBox(b, u *box) string {
	family := familyOfBox(b)
	var words []string
	add := func(d int, text string) {
		if !sameNumbers(b.numbers[d], u.numbers[d]) {
			words = append(words, text)
		}
	}
	add(service, servicesInWords(b.numbers[service], family))
	if !sameNumbers(b.numbers[original], u.numbers[original]) && b.numbers[original][0].from != notRewritten {
		words = append(words, "published "+servicesInWords(b.numbers[original].minus(one(notRewritten)), family))
	}
	for d, word := range []string{source: "from", destination: "to"} {
		if !b.addresses[d].Equal(u.addresses[d]) {
			words = append(words, word+" "+few(b.addresses[d]))
		}
	}
	add(in, "in "+c.names.inWords(b.numbers[in]))
	add(out, "out "+c.names.inWords(b.numbers[out]))
	if len(words) == 0 {
		return "all"
	}
	return strings.Join(words, " ")
}

func sameNumbers(a, b numbers) bool { return a.same(b) || slices.Equal(a, b) }

func familyOfBox(b *box) int {
	if b.addresses[source].Has4() {
		return 4
	}
	return 6
}

var protocolNames = map[uint8]string{
	packet.TCP: "tcp", packet.UDP: "udp", packet.SCTP: "sctp", packet.DCCP: "dccp", packet.UDPLite: "udplite",
	packet.ICMP: "icmp", packet.ICMPv6: "icmp",
}

// servicesInWords writes numbers as the policy would: "tcp/80, udp/53, icmp
// echo-request".
func servicesInWords(n numbers, family int) string {
	const most = 4
	var words []string
	for protocol := range 256 {
		whole := wholeProtocol(uint8(protocol))
		part := n.intersect(numbers{whole})
		name, known := protocolNames[uint8(protocol)]
		if !known {
			name = fmt.Sprintf("proto/%d", protocol)
		}
		switch {
		case len(part) == 0:
		case part[0] == whole:
			words = append(words, name)
		case protocol == packet.ICMP || protocol == packet.ICMPv6:
			for _, s := range part {
				words = append(words, icmpName(uint8(s.from), family, s.to-s.from))
			}
		default:
			for _, s := range part {
				words = append(words, fmt.Sprintf("%s/%s", name, policy.PortRange{From: uint16(s.from), To: uint16(s.to)}))
			}
		}
	}
	if len(words) > most {
		return strings.Join(words[:most], ", ") + fmt.Sprintf(" and %d more services", len(words)-most)
	}
	return strings.Join(words, ", ")
}

func icmpName(kind uint8, family int, more uint64) string {
	text := fmt.Sprintf("icmp type %d", kind)
	if more > 0 {
		return fmt.Sprintf("icmp types %d-%d", kind, uint64(kind)+more)
	}
	for _, s := range policy.Builtin() {
		for _, m := range s.Matches {
			if m.ICMP != nil && (family == 4 && m.ICMP.V4 == int(kind) || family == 6 && m.ICMP.V6 == int(kind)) {
				return "icmp " + m.ICMP.Name
			}
		}
	}
	return text
}

// inWords names interfaces; "other interfaces" is those that no zone names.
func (n interfaceNames) inWords(indices numbers) string {
	const elsewhere, route = 1, 2
	when := make([]int, len(n.kinds))
	all := len(n.kinds) > 0
	for kind := range n.kinds {
		if len(indices.intersect(one(uint64(kind)))) > 0 { //nolint:gosec // few
			when[kind] |= elsewhere
		}
		if n.follows && len(indices.intersect(one(n.byRoute(kind)))) > 0 {
			when[kind] |= route
		}
		all = all && (!routable(kind) || when[kind]&route != 0)
	}
	var words []string
	if all && n.follows {
		words = append(words, "the default route's interface")
	}
	for kind, name := range n.kinds {
		if name = strings.ReplaceAll(name, someOther, "*"); kind == 2 {
			name = "other interfaces"
		}
		switch w := when[kind]; {
		case !routable(kind) || w == 0 || all && w == route:
		case n.follows && w == route:
			words = append(words, name+" if the default route uses it")
		case n.follows && w == elsewhere && !all:
			words = append(words, name+" if no default route uses it")
		default:
			words = append(words, name)
		}
	}
	return strings.Join(words, ", ")
}

// preferred is where witnesses come from where they can: addresses that are
// nobody's (RFC 5737, RFC 3849), then those of the internet.
var preferred = []addrset.Set{
	addrset.MustParse("203.0.113.7/32", "2001:db8:feed::7/128"),
	addrset.MustParse("203.0.113.0/24", "198.51.100.0/24", "192.0.2.0/24", "2001:db8::/32"),
	internet,
}

// internet is the unicast addresses of the internet, as far as they are given
// out: IPv4 but 0/8, 10/8, 127/8 and what is no unicast, IPv6 as 2000::/3.
var internet = addrset.MustParse("0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3", "2000::/3").
	Difference(addrset.MustParse("0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"))

func someAddress(s addrset.Set) netip.Addr {
	for _, p := range preferred {
		if some := s.Intersect(p); !some.IsEmpty() {
			first, _, _ := some.Bounds()
			if next := first.Next(); some.Contains(next) {
				return next // the first one often names the network
			}
			return first
		}
	}
	first, _, _ := s.Bounds()
	if next := first.Next(); s.Contains(next) {
		return next // the first one often names the network
	}
	return first
}

// witness is one packet of a box: a new flow, or what the state says.
func (c *checker) witness(hook policy.Hook, b box, state packet.State) *packet.Packet {
	p := packet.Packet{State: state, Owner: -1, HopLimit: 64}
	wireOf := func(n numbers) (uint8, uint16) {
		at := n[0].from
		for _, protocol := range []uint64{packet.TCP, packet.UDP, packet.ICMP, packet.ICMPv6} {
			if some := n.intersect(numbers{wholeProtocol(uint8(protocol))}); len(some) > 0 {
				at = some[0].from
				if at == protocol<<16 && protocol != packet.ICMP && protocol != packet.ICMPv6 && some[0].to > at {
					at++ // port 0 is nobody's
				}
				break
			}
		}
		return uint8(at >> 16), uint16(at)
	}
	var port uint16
	p.Protocol, port = wireOf(b.numbers[service])
	if hook == policy.Forward { // neither end of what is forwarded is the host
		for _, side := range []int{source, destination} {
			if others := b.addresses[side].Difference(c.own); !others.IsEmpty() {
				b.addresses[side] = others
			}
		}
	}
	p.Source, p.Destination = someAddress(b.addresses[source]), someAddress(b.addresses[destination])
	if here := b.addresses[destination].Intersect(c.hostAddresses()); hook == policy.Input && !here.IsEmpty() {
		p.Destination = someAddress(here)
	}
	if here := b.addresses[source].Intersect(c.hostAddresses()); hook == policy.Output && !here.IsEmpty() {
		p.Source = someAddress(here)
	}
	if hook == policy.Input {
		p.DestinationLocal = packet.Yes
	} else {
		p.DestinationLocal = packet.Is(c.own.Contains(p.Destination))
	}
	p.SourceLocal = packet.Is(hook == policy.Output || c.own.Contains(p.Source))
	switch {
	case p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6:
		p.ICMPType = uint8(port)
	case p.HasPorts():
		p.Port, p.SourcePort = port, 40000
		if only := b.numbers[sourcePort].intersect(one(40000)); len(only) == 0 {
			p.SourcePort = uint16(b.numbers[sourcePort][0].from)
		}
		if p.Protocol == packet.TCP {
			p.Flags = packet.SYN
		}
	}
	p.In, p.Out = c.someInterface(b.numbers[in], p.Source), c.someInterface(b.numbers[out], p.Destination)
	if n := b.numbers[user]; hook == policy.Output && len(n.intersect(one(noUser))) == 0 {
		p.Owner = int64(n[0].from)
	}
	if n := b.numbers[original]; len(n.intersect(one(notRewritten))) == 0 {
		_, before := wireOf(n)
		p.DNAT = true
		p.Original = packet.Tuple{Source: p.Source, Destination: someAddress(b.addresses[originalDestination]), SourcePort: p.SourcePort, Port: before}
	}
	return &p
}

// someInterface names an interface of the host where it has one of these: the one
// whose network holds an address, the default route's, or another one; else one
// that fits; "" is no or any interface.
func (c *checker) someInterface(indices numbers, toward netip.Addr) string {
	if len(indices.intersect(one(0))) > 0 {
		return ""
	}
	fits := func(name string) bool { return len(indices.intersect(one(c.names.index(name)))) > 0 }
	for _, i := range c.facts.Interfaces {
		for _, p := range i.Addresses {
			if i.Name != loopback && p.Masked().Contains(toward) && fits(i.Name) {
				return i.Name
			}
		}
	}
	for _, name := range c.facts.DefaultRoute {
		if fits(name) {
			return name
		}
	}
	for _, i := range c.facts.Interfaces {
		if i.Name != loopback && i.Master == "" && fits(i.Name) {
			return i.Name
		}
	}
	for _, s := range indices {
		for i := s.from; i <= s.to && i < uint64(len(c.names.kinds)); i++ {
			if name := c.names.kinds[i]; i > 0 && name != loopback && name != someOther {
				return strings.ReplaceAll(name, someOther, "0")
			}
		}
	}
	return ""
}

// packetText is a packet in words: "tcp from 203.0.113.7 to 198.51.100.1 port
// 22, in by eth0".
func packetText(p *packet.Packet) string {
	name, known := protocolNames[p.Protocol]
	if !known {
		name = fmt.Sprintf("protocol %d", p.Protocol)
	}
	text := fmt.Sprintf("%s from %s", name, p.Source)
	switch {
	case p.HasPorts():
		text += fmt.Sprintf(" port %d to %s port %d", p.SourcePort, p.Destination, p.Port)
	case p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6:
		text += fmt.Sprintf(" to %s, %s", p.Destination, icmpName(p.ICMPType, p.Family(), 0))
	default:
		text += " to " + p.Destination.String()
	}
	if p.DNAT {
		text += fmt.Sprintf(", rewritten from %s port %d", p.Original.Destination, p.Original.Port)
	}
	if p.In != "" {
		text += ", in by " + p.In
	}
	if p.Out != "" {
		text += ", out by " + p.Out
	}
	if p.State == packet.Untracked {
		text += ", not tracked"
	}
	return text
}
