package peers

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// byHand writes a section as somebody does who counts what a packet costs: known
// connections leave first, and a chain for TCP and one for UDP ask nothing that is
// about others.
func (w *iptablesText) byHand(c code, m Meaning, s hooked, chain string) {
	for i := range s.Rules {
		if s.Rules[i].Action == policy.ClampMSS {
			w.rule(c, chain, &s.Rules[i], s.Rules[i].Ways...)
		}
	}
	c.line(chain, knownAccept)
	w.loopback(c, s.hook, chain)
	if m.bansByLimit() {
		for _, side := range map[policy.Hook][]string{policy.Input: {"src"}, policy.Output: {"dst"}, policy.Forward: {"src", "dst"}}[s.hook] {
			c.line(chain, "-m set --match-set %s %s -j DROP", w.overLimit(), side)
		}
	}
	if !m.InvalidAllow {
		c.line(chain, invalidDrop)
	}
	for _, protocol := range []uint8{packet.TCP, packet.UDP} {
		name := strings.ToLower(chain) + "_" + protocolName(protocol)
		c.declare(name)
		c.line(chain, "-p %s -g %s", protocolName(protocol), name)
		if protocol == packet.UDP {
			w.dhcp(c, s.hook, name)
		}
		w.inTurn(c, name, protocol, waysIn(s, func(p uint8) bool { return p == protocol }))
		w.otherwise(c, name, s.Section)
	}
	w.needed(c, m, s.hook, chain)
	w.inTurn(c, chain, 0, waysIn(s, func(p uint8) bool { return p != packet.TCP && p != packet.UDP }))
	w.otherwise(c, chain, s.Section)
}

// inTurn writes rules in their order. Of a few ports that nothing else is asked with,
// each has a rule: that is cheaper than the match of many.
func (w *iptablesText) inTurn(c code, chain string, protocol uint8, ways []ruleWay) {
	const few = 2
	for _, r := range ways {
		way := r.way
		if way.Protocol == 0 && r.Action == policy.Reject {
			way.Protocol = protocol
		}
		if r.single() && len(way.Ports) <= few {
			for _, p := range way.Ports {
				w.rule(c, chain, r.Rule, Way{Protocol: way.Protocol, Ports: []policy.PortRange{p}})
			}
			continue
		}
		w.rule(c, chain, r.Rule, way)
	}
}

// needed is the ICMP that no network does without and that no state knows: errors are
// related to a connection, except for those about what keeps no state.
func (w *iptablesText) needed(c code, m Meaning, hook policy.Hook, chain string) {
	protocol, option, types := "icmp", "--icmp-type", []int{3, 11, 12}
	if w.family == 6 {
		protocol, option, types = "ipv6-icmp", "--icmpv6-type", []int{1, 2, 3, 4}
	}
	if len(m.Bypass) == 0 {
		types = nil
	}
	if w.family == 6 && hook != policy.Forward {
		types = append(slices.Clone(types), 130, 131, 132, 133, 134, 135, 136, 143)
	}
	for _, t := range types {
		c.line(chain, "-p %s %s %d -j ACCEPT", protocol, option, t)
	}
}

// banOver bans who is over a limit, at the end of the chain that counts.
func (w *iptablesText) banOver(c code, chain string, l *policy.Limit) {
	spared := ""
	if w.spared != nil {
		spared = fmt.Sprintf("-m set ! --match-set %s src ", c.set(iptablesTest{"src", w.spared}))
	}
	banned := c.chain("ban")
	c.line(chain, "%s-j %s", spared, banned)
	c.line(banned, "-j SET --add-set %s src --exist --timeout %d", w.overLimit(), int(l.ThenBan.Seconds()))
	c.line(banned, "-j DROP")
}

// overLimit is the set of those whom a limit has banned. Of IPv6 it has networks.
func (w *iptablesText) overLimit() string {
	name := fmt.Sprintf("over%d", w.family)
	if !w.named[name] {
		w.named[name] = true
		mask := ""
		if w.family == 6 {
			mask = " netmask 64"
		}
		fmt.Fprintf(w.sets, "create %s hash:ip family %s%s timeout 3600\n", name, w.inet(), mask)
	}
	return name
}
