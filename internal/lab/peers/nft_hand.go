package peers

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// byHand writes a section as somebody does who counts what a packet costs: known
// connections leave first, a chain for TCP and one for UDP ask nothing that is about
// others, a verdict map decides by the port, and what the kernel can forward by itself
// goes there.
func (w *nftText) byHand(to *bytes.Buffer, s hooked) {
	var body bytes.Buffer
	line := func(text string, args ...any) { fmt.Fprintf(&body, "\t\t"+text+"\n", args...) }
	for i := range s.Rules {
		if s.Rules[i].Action == policy.ClampMSS { // of known connections too
			w.rule(&body, &s.Rules[i])
		}
	}
	if s.hook == policy.Forward && w.meaning.Accelerated && len(w.meaning.Interfaces) > 0 {
		fmt.Fprintf(&w.sets, "\tflowtable fast { hook ingress priority filter; devices = %s; }\n", "{ "+strings.Join(quoted(w.meaning.Interfaces), ", ")+" }")
		line("ct state == established flow add @fast")
	}
	line("ct state == established accept")
	w.bannedByLimit(&body, s.hook)
	if w.meaning.InvalidAllow {
		line("ct state related accept")
	}
	for _, protocol := range []uint8{packet.TCP, packet.UDP} {
		w.protocol(&body, s, protocol)
	}
	w.remaining(&body, s)
	def := "accept"
	if s.Default != policy.Allow {
		def = "drop"
	}
	w.base(to, string(s.hook), "filter", string(s.hook), "filter", def, &body)
}

// protocol leads what begins a flow of one, or keeps no state, to a chain of its own.
func (w *nftText) protocol(to *bytes.Buffer, s hooked, protocol uint8) {
	var body bytes.Buffer
	if s.hook == policy.Input && protocol == packet.UDP {
		body.WriteString("\t\tmeta nfproto ipv4 udp sport 67 udp dport 68 accept\n")
		body.WriteString("\t\tudp sport 547 udp dport 546 ip6 saddr fe80::/10 accept\n")
	}
	var rest bytes.Buffer
	ways := w.open(&body, protocol, waysIn(s, func(p uint8) bool { return p == protocol }))
	w.inTurn(&rest, protocol, ways)
	w.otherwise(&rest, s, protocol)
	if body.Len()+rest.Len() == 0 {
		return
	}
	body.WriteString(loopback(s.hook))
	body.Write(rest.Bytes())
	name := fmt.Sprintf("%s_%s", s.hook, protocolName(protocol))
	fmt.Fprintf(&w.chains, "\tchain %s {\n%s\t}\n", name, body.Bytes())
	states := "ct state == new "
	switch {
	case w.meaning.InvalidAllow:
		states = ""
	case len(w.meaning.Bypass) > 0 || slices.ContainsFunc(w.meaning.NAT, func(n NAT) bool { return n.Stateless }):
		states = "ct state new,untracked "
	}
	fmt.Fprintf(to, "\t\tmeta l4proto %s %sgoto %s\n", protocolName(protocol), states, name)
}

// remaining is what is neither TCP nor UDP that begins a flow.
func (w *nftText) remaining(to *bytes.Buffer, s hooked) {
	line := func(text string) { fmt.Fprintf(to, "\t\t%s\n", text) }
	to.WriteString(loopback(s.hook))
	if !w.meaning.InvalidAllow {
		line("ct state related accept")
	}
	if len(w.meaning.Bypass) > 0 { // errors about what keeps no state
		line("icmp type { destination-unreachable, time-exceeded, parameter-problem } accept")
		line("icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } accept")
	}
	if s.hook != policy.Forward {
		line("icmpv6 type { mld-listener-query, mld-listener-report, mld-listener-done, nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, mld2-listener-report } accept")
	}
	if !w.meaning.InvalidAllow {
		line("ct state invalid drop")
	}
	w.inTurn(to, 0, waysIn(s, func(p uint8) bool { return p != packet.TCP && p != packet.UDP }))
	w.otherwise(to, s, 0)
}

// otherwise is what no rule decides.
func (w *nftText) otherwise(to *bytes.Buffer, s hooked, protocol uint8) {
	if s.DefaultLog != nil {
		fmt.Fprintf(to, "\t\t%s\n", logLimited(*s.DefaultLog))
	}
	if s.Default == policy.Reject {
		fmt.Fprintf(to, "\t\t%s\n", w.refusal(protocol))
	}
}

// ruleWay is one way of a rule.
type ruleWay struct {
	*Rule
	way Way
}

// waysIn are those of a section whose protocol is meant, and those of any.
func waysIn(s hooked, meant func(uint8) bool) (out []ruleWay) {
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Action == policy.ClampMSS {
			continue
		}
		for _, way := range r.Ways {
			if way.Protocol == 0 || meant(way.Protocol) {
				out = append(out, ruleWay{r, way})
			}
		}
	}
	return out
}

// port is that of the packet's that the rule asks.
func (r ruleWay) port() string {
	if r.Answers {
		return "sport"
	}
	return "dport"
}

// always says that the rule asks for nothing but its way, and decides.
func (r ruleWay) always() bool {
	return r.From == nil && r.To == nil && r.Family == 0 && len(r.In)+len(r.Out)+len(r.Users) == 0 &&
		r.Limit == nil && r.Max == nil && r.Log == nil && !r.Answers && !r.Published
}

// single says that the rule names ports one by one.
func (r ruleWay) single() bool {
	return len(r.way.Ports) > 0 && !r.Answers && !r.Published &&
		!slices.ContainsFunc(r.way.Ports, func(p policy.PortRange) bool { return p.From != p.To })
}

// fewRules are cheaper one after the other than a verdict map.
const fewRules = 3

// open writes what is open to everybody as one set, since it is asked most, and returns
// the ways behind it.
func (w *nftText) open(to *bytes.Buffer, protocol uint8, ways []ruleWay) []ruleWay {
	var open []policy.PortRange
	for len(ways) > 0 && ways[0].always() && ways[0].Action == policy.Allow && len(ways[0].way.Ports) > 0 {
		open, ways = append(open, ways[0].way.Ports...), ways[1:]
	}
	if len(open) > 0 {
		fmt.Fprintf(to, "\t\t%s dport %s accept\n", protocolName(protocol), nftPorts(open))
	}
	return ways
}

// loopback is accepted behind what is open to everybody.
func loopback(hook policy.Hook) string {
	return map[policy.Hook]string{policy.Input: "\t\tiif lo accept\n", policy.Output: "\t\toif lo accept\n"}[hook]
}

// inTurn writes rules in their order, all for one protocol; 0 is all but TCP and UDP.
// Where many rules name ports, a map leads to those of the packet's.
func (w *nftText) inTurn(to *bytes.Buffer, protocol uint8, ways []ruleWay) {
	for len(ways) > 0 {
		n, rules := 0, 0
		for n < len(ways) && protocol != 0 && ways[n].single() {
			rules += len(ways[n].families(ways[n].way))
			n++
		}
		if rules > fewRules {
			w.byPort(to, protocol, ways[:n])
			ways = ways[n:]
			continue
		}
		for _, r := range ways[:max(n, 1)] {
			w.asked(to, protocol, r)
		}
		ways = ways[max(n, 1):]
	}
}

// asked writes one way in a chain where the protocol is known; 0 is not.
func (w *nftText) asked(to *bytes.Buffer, protocol uint8, r ruleWay) {
	service := nftService(r.way, r.port())
	if r.Published {
		service = nftPublished(r.way)
	} else if protocol != 0 && len(r.way.Ports) == 0 {
		service = ""
	}
	w.way(to, r.Rule, Way{Protocol: cmp.Or(r.way.Protocol, protocol), Ports: r.way.Ports, Types: r.way.Types}, service)
}

// byPort writes a verdict map: each port has its verdict, or a chain of its rules.
func (w *nftText) byPort(to *bytes.Buffer, protocol uint8, ways []ruleWay) {
	var ports []uint16
	of := map[uint16][]ruleWay{}
	for _, r := range ways {
		for _, p := range r.way.Ports {
			if of[p.From] == nil {
				ports = append(ports, p.From)
			}
			of[p.From] = append(of[p.From], r)
		}
	}
	chains := map[string]string{}
	var verdicts []string
	for _, p := range ports {
		if first := of[p][0]; first.always() && first.Action != policy.Reject {
			verdicts = append(verdicts, fmt.Sprintf("%d : %s", p, w.action(first.Rule, first.way, 0)))
			continue
		}
		var body bytes.Buffer
		for _, r := range of[p] {
			w.way(&body, r.Rule, r.way, "")
		}
		text := body.String()
		if chains[text] == "" {
			chains[text] = w.body(protocolName(protocol), body)
		}
		verdicts = append(verdicts, fmt.Sprintf("%d : jump %s", p, chains[text]))
	}
	fmt.Fprintf(to, "\t\t%s dport vmap { %s }\n", protocolName(protocol), strings.Join(verdicts, ", "))
}

// everywhere is ports that are served at all of some addresses.
type everywhere struct {
	protocol  uint8
	addresses []addrset.Range
	ports     []policy.PortRange
}

// everyPort says endpoints by addresses and ports, of each protocol and family; false
// where not every address has every port.
func everyPort(endpoints []policy.Endpoint) (out []everywhere, is bool) {
	count := map[int]int{}
	for _, e := range endpoints {
		i := slices.IndexFunc(out, func(o everywhere) bool {
			return o.protocol == e.Protocol && o.addresses[0].From.Is4() == e.Address.From.Is4()
		})
		if i < 0 {
			i = len(out)
			out = append(out, everywhere{protocol: e.Protocol})
		}
		if !slices.Contains(out[i].addresses, e.Address) {
			out[i].addresses = append(out[i].addresses, e.Address)
		}
		if port := (policy.PortRange{From: e.Port, To: e.Port}); !slices.Contains(out[i].ports, port) {
			out[i].ports = append(out[i].ports, port)
		}
		count[i]++
	}
	for i := range out {
		o := &out[i]
		if count[i] != len(o.addresses)*len(o.ports) {
			return nil, false
		}
		slices.SortFunc(o.ports, func(a, b policy.PortRange) int { return int(a.From) - int(b.From) })
		merged := o.ports[:1]
		for _, p := range o.ports[1:] {
			if last := &merged[len(merged)-1]; last.To+1 == p.From {
				last.To = p.To
				continue
			}
			merged = append(merged, p)
		}
		o.ports = merged
	}
	return out, true
}
