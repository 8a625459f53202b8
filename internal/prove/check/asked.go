package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// asked is one server at one address that the host asks by itself and needs an
// answer from.
type asked struct {
	role     string // "name server", "package mirror", "time server"
	address  netip.Addr
	protocol uint8
	ports    []uint16 // one of them has to be reached
	from     uint16   // port that it is asked from; 0: any
	name     string   // with the address, as messages say it
}

const (
	nameServer = "name server"
	portDNS    = 53
	portDoT    = 853
)

// asked is the servers whose addresses are known; none of an unknown host.
func (c *checker) asked() []asked {
	var all []asked
	if !c.facts.Known {
		return nil
	}
	add := func(a asked) {
		if !policy.NeverBanned.Contains(a.address) && !c.own.Contains(a.address) {
			all = append(all, a)
		}
	}
	for _, address := range c.facts.Resolvers {
		add(asked{role: nameServer, address: address, protocol: packet.UDP, ports: []uint16{portDNS}, name: address.String()})
	}
	for _, s := range c.facts.Servers {
		for _, address := range s.Addresses {
			name := address.String()
			if s.Name != name {
				name = fmt.Sprintf("%s (%s)", s.Name, address)
			}
			add(asked{string(s.Role), address, wireProtocols[s.Protocol], []uint16{s.Port}, s.FromPort, name})
		}
	}
	return all
}

func single(a netip.Addr) addrset.Set { return addrset.Of(addrset.Range{From: a, To: a}) }

func familyOfAddress(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// names lists servers in a message, a few of them.
func names(servers []asked) string {
	var words []string
	for _, s := range servers {
		if word := "the " + s.role + " " + s.name; !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return english.Few(words, 3)
}

// requestsCut finds servers that the host asks by itself and output does not let
// it ask, whichever user does.
func (c *checker) requestsCut() {
	s := c.policy.Output
	if s == nil {
		return
	}
	type refusal struct {
		rule    *policy.Rule
		servers []asked
		packets []box
	}
	var refusals []*refusal
	banned := c.banned(policy.Output)
	for _, a := range c.asked() {
		b := c.universe(policy.Output, familyOfAddress(a.address))
		b.addresses[destination] = single(a.address)
		// Who asks a name server over TLS asks another port.
		ports := []span{wire(a.protocol, a.ports[0], a.ports[0])}
		if a.role == nameServer {
			ports = append(ports, wire(packet.TCP, portDoT, portDoT))
		}
		b.numbers[service] = numbersOf(ports...)
		if a.from != 0 {
			b.numbers[sourcePort] = one(uint64(a.from))
		}
		packets, ok := c.effort.minus([]box{b}, banned)
		if !ok || len(packets) == 0 {
			continue // a finding of its own
		}
		f := c.fate(s, packets)
		if !f.known || f.allowed {
			continue
		}
		at := slices.IndexFunc(refusals, func(r *refusal) bool { return r.rule == f.refuser })
		if at < 0 {
			first := b
			first.numbers[service] = numbers{ports[0]}
			shown := both(f.refusals, []box{first})
			if len(shown) == 0 {
				shown = f.refusals
			}
			refusals = append(refusals, &refusal{rule: f.refuser, packets: shown})
			at = len(refusals) - 1
		}
		refusals[at].servers = append(refusals[at].servers, a)
	}
	for _, r := range refusals {
		pos, by := defaultPos(s), "the default refuses"
		if r.rule != nil {
			pos, by = r.rule.Pos, "this rule refuses"
		}
		var rules []string
		for _, a := range r.servers {
			rule := quoted(fmt.Sprintf("allow %s/%d to %s", protocolNames[a.protocol], a.ports[0], a.address))
			if !slices.Contains(rules, rule) && len(rules) < 3 {
				rules = append(rules, rule)
			}
		}
		hint := "add to output: " + english.List(rules)
		if r.rule != nil {
			hint = "put above it: " + english.List(rules)
		}
		f := c.report(RequestsCut, Warning, pos, hint, "%s this host's own requests to %s", by, names(r.servers))
		c.shows(f, policy.Output, r.packets, r.rule)
	}
}

// forgedBans finds limits that ban, of which anybody can have a server of the
// host banned by forging its address: where no handshake of TCP is completed, a
// limit counts the first packet of a flow, which nobody has to answer. Name servers
// and routers of the host are exempt from bans by limits.
func (c *checker) forgedBans() {
	var exempt addrset.Builder
	for _, a := range slices.Concat(c.facts.Resolvers, c.facts.Gateways) {
		exempt.AddAddr(a)
	}
	spared := c.spared().Union(exempt.Set())
	var servers []asked
	for _, a := range c.asked() {
		if !spared.Contains(a.address) {
			servers = append(servers, a)
		}
	}
	if len(servers) == 0 {
		return
	}
	for _, s := range c.sections() {
		for _, st := range c.standings(s) {
			if !st.own || st.rule.Limit == nil || st.rule.Limit.ThenBan == 0 || !st.known {
				continue
			}
			var hit []asked
			var shown []box
			for _, a := range servers {
				b := c.universe(s.Hook, familyOfAddress(a.address))
				b.addresses[source] = bannedWith(a.address)
				if forged := c.unproven(s.Hook, st.rule, both([]box{b}, st.left)); len(forged) > 0 {
					hit, shown = append(hit, a), forged
				}
			}
			if len(hit) == 0 {
				continue
			}
			f := c.report(ForgedBan, Warning, st.rule.Limit.Pos, "add their addresses to never-ban",
				"by forging source addresses, others can ban servers that this host uses: %s", names(hit))
			c.shows(f, s.Hook, shown, st.rule)
		}
	}
}

// bannedWith is the sources whose ban by a limit covers an address: of IPv6 the
// whole /64 is banned.
func bannedWith(a netip.Addr) addrset.Set {
	if a.Is4() {
		return single(a)
	}
	return addrset.FromPrefixes(netip.PrefixFrom(a, 64).Masked())
}

// repliesCut finds answers to the host's own requests that a rule decides and
// not the state of the connection.
func (c *checker) repliesCut() {
	for i := range c.policy.Tracking.Bypass {
		b := &c.policy.Tracking.Bypass[i]
		if !c.bypassedAnswers(b) {
			c.bypassedPeers(b)
		}
	}
	for _, n := range c.policy.NAT {
		if n.Kind == policy.Map && n.Stateless {
			c.mappedAnswers(n)
		}
	}
}

// bypassedAnswers: a program that asks from the port of a bypassed service makes
// no entry in the connection table, so the answers come in as if nobody had
// asked. There is one finding of each port.
func (c *checker) bypassedAnswers(b *policy.Bypass) (found bool) {
	if c.policy.Input == nil {
		return false
	}
	type port struct {
		protocol uint8
		number   uint16
	}
	var ports []port
	hit, why := map[port][]asked{}, map[port]fate{}
	banned := c.banned(policy.Input)
	for _, a := range append(c.asked(), c.peers()...) {
		if a.from == 0 {
			continue
		}
		answers, ok := c.effort.minus(c.answersTo(b, a.protocol, a.from, single(a.address), one(uint64(a.ports[0]))), banned)
		if !ok || len(answers) == 0 {
			continue
		}
		at := port{a.protocol, a.from}
		if got := c.fate(c.policy.Input, answers); got.known && got.refused {
			if len(hit[at]) == 0 {
				ports = append(ports, at)
			}
			hit[at], why[at] = append(hit[at], a), got
		}
	}
	for _, at := range ports {
		c.answersCut(b, hit[at], why[at])
	}
	return len(ports) > 0
}

// answersCut reports servers that are asked from one port of a bypassed service.
func (c *checker) answersCut(b *policy.Bypass, hit []asked, f fate) {
	var rules []string
	for _, a := range hit {
		rules = append(rules, a.address.String())
	}
	slices.Sort(rules)
	rules = slices.Compact(rules)
	who := rules[0]
	if len(rules) > 1 {
		who = "[" + strings.Join(rules, ", ") + "]"
	}
	finding := c.report(RepliesCut, Warning, b.Pos, fmt.Sprintf("remove it from bypass, or add to input: allow %s/%d from %s", protocolNames[hit[0].protocol], hit[0].from, who),
		"answers of %s would be refused: this host sends from port %d, which bypasses tracking, so %s decides the answers, not their connection's state",
		names(hit), hit[0].from, c.decider(f, b.Pos))
	c.showsState(finding, policy.Input, f.refusals, f.refuser, packet.Untracked)
	if f.refuser != nil {
		finding.Related = append(finding.Related, Related{f.refuser.Pos, f.refuser.Text})
	}
}

// peers is whom programs of the host ask now from ports of their own.
func (c *checker) peers() []asked {
	var all []asked
	for _, a := range c.facts.Askers {
		for _, p := range a.Peers {
			if !c.own.Contains(p.Addr()) {
				all = append(all, asked{"peer", p.Addr(), wireProtocols[a.Protocol], []uint16{p.Port()}, a.Port, fmt.Sprintf("%s of %s", p.Addr(), a.Name)})
			}
		}
	}
	return all
}

// wireProtocols are the numbers of the protocols that facts name.
var wireProtocols = map[string]uint8{"tcp": packet.TCP, "udp": packet.UDP}

// decider names what refuses.
func (c *checker) decider(f fate, at policy.Pos) string {
	if f.refuser == nil {
		return "the default of input"
	}
	return fmt.Sprintf("%q on %s", f.refuser.Text, place(f.refuser.Pos, at))
}

// answersTo is the answers that come in to a port of a bypassed service from
// somebody's port.
func (c *checker) answersTo(b *policy.Bypass, protocol uint8, port uint16, from addrset.Set, fromPort numbers) []box {
	var out []box
	for _, family := range []int{4, 6} {
		u := c.universe(policy.Input, family)
		u.numbers[service], u.numbers[sourcePort] = numbers{wire(protocol, port, port)}, fromPort
		u.numbers[original] = one(notRewritten)
		u.addresses[source] = u.addresses[source].Intersect(from)
		if here := c.hostAddresses(); !here.IsEmpty() {
			u.addresses[destination] = u.addresses[destination].Intersect(here)
		}
		if !u.empty() {
			out = append(out, both([]box{u}, c.local(b, family))...)
		}
	}
	return out
}

// bypassedPeers: the same for programs that ask from their own port, where the peers
// are not known and input does not allow them all.
func (c *checker) bypassedPeers(b *policy.Bypass) {
	if c.policy.Input == nil {
		return
	}
	own := host.OwnPorts()
	for _, a := range c.facts.Askers {
		if !slices.ContainsFunc(own, func(o host.OwnPort) bool { return o.Protocol == a.Protocol && o.Port == a.Port }) {
			own = append(own, host.OwnPort{Name: a.Name, Protocol: a.Protocol, Port: a.Port})
		}
	}
	for _, o := range own {
		answers := c.answersTo(b, wireProtocols[o.Protocol], o.Port, addrset.All(), one(uint64(o.Port)))
		if len(answers) == 0 {
			continue
		}
		f := c.fate(c.policy.Input, answers)
		if !f.known || !f.refused || !f.allowed {
			continue // nothing of it is allowed at all: bypass-unused
		}
		finding := c.report(RepliesCut, Remark, b.Pos, "remove it from bypass, or make sure that input allows every peer that this host contacts",
			"%s sends from port %d, which bypasses tracking: answers of peers that input does not allow are refused, even to requests of this host (%s decides)",
			o.Name, o.Port, c.decider(f, b.Pos))
		c.showsState(finding, policy.Input, f.refusals, f.refuser, packet.Untracked)
	}
}

// mappedAnswers: a map without state rewrites whatever comes in for its outer
// addresses, answers to the host among it, and the host itself cannot ask what
// is behind them by those.
func (c *checker) mappedAnswers(n *policy.NAT) {
	outside := addrset.Of(n.Outside.Range)
	if own := c.hostAddresses().Intersect(outside); !own.IsEmpty() {
		c.report(RepliesCut, Warning, n.Pos, "map only addresses that this host does not have, or remove \"stateless\"",
			"this map rewrites everything that comes in for %s, an address of this host: answers to the host's own requests go to a machine inside", few(own))
	}
	var hit []asked
	for _, a := range c.asked() {
		if outside.Contains(a.address) {
			hit = append(hit, a)
		}
	}
	if len(hit) > 0 {
		c.report(RepliesCut, Warning, n.Pos, "use its address inside",
			"this host uses an address in front of this map, which does not lead it to the machine inside: %s", names(hit))
	}
}

// serverRoles are those that ban-server speaks of; name servers have a code of
// their own.
var serverRoles = []string{string(host.Mirror), string(host.TimeServer)}
