package check

import (
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// need is something that a host says by itself, and that its network misses
// when it does not.
type need struct {
	what    string
	family  int
	service span
	from    numbers     // ports
	to      addrset.Set // empty: anybody
	rule    string      // that allows it
}

// needs are what output refuses silently where it refuses by default. What
// ICMPv6 needs passes without being written; of DHCP only the first packets do,
// which clients send past every hook.
var needs = []need{
	{what: "DHCP renewals", family: 4, service: wire(packet.UDP, 67, 67), from: one(68), rule: "allow dhcp"},
	{what: "DHCPv6", family: 6, service: wire(packet.UDP, 547, 547), from: one(546), rule: "allow dhcpv6"},
	{what: "IGMP, to join multicast groups", family: 4, service: wholeProtocol(protoIGMP), from: one(0), to: multicast4, rule: "allow proto/2"},
}

const protoIGMP = 2

var multicast4 = addrset.FromPrefixes(netip.MustParsePrefix("224.0.0.0/4"))

// hostNeeds finds an output that refuses by default what nobody thought of.
func (c *checker) hostNeeds() {
	s := c.policy.Output
	if s == nil || s.Default == policy.Allow {
		return
	}
	var missing, rules []string
	for _, n := range needs {
		if !c.thoughtOf(s, n) {
			missing, rules = append(missing, n.what), append(rules, quoted(n.rule))
		}
	}
	if len(missing) == 0 {
		return
	}
	pos := s.DefaultPos
	if pos.Line == 0 {
		pos = s.Pos
	}
	c.report(HostNeeds, Remark, pos, "add to output what the host uses: "+english.List(rules),
		"output refuses by default, and no rule covers what the host itself may need to send: %s", english.List(missing))
}

// thoughtOf says whether a rule allows some of it, or a rule of its own refuses
// all of it.
func (c *checker) thoughtOf(s *policy.Section, n need) bool {
	b := c.universe(s.Hook, n.family)
	b.numbers[service], b.numbers[sourcePort] = numbers{n.service}, n.from
	if !n.to.IsEmpty() {
		b.addresses[destination] = n.to
	}
	for _, r := range s.Rules {
		if r.Action == policy.ClampMSS {
			continue
		}
		match := c.packets(s.Hook, r)
		if r.Action == policy.Allow && overlap([]box{b}, match) {
			return true
		}
		if rest, ok := c.effort.minus([]box{b}, match); ends(r) && ok && len(rest) == 0 {
			return true
		}
	}
	return false
}
