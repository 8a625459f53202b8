package check

import (
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// waysBack finds rules that let untracked traffic through whose answers nothing
// lets through. A rule with ports is mirrored by the compiler; one without is
// not, since nothing would tell its answers from other traffic.
func (c *checker) waysBack() {
	if s := c.policy.Input; s != nil && c.policy.Output != nil {
		c.wayBack(s, c.policy.Output, c.untracked(), "bypasses tracking")
	}
	if s := c.policy.Forward; s != nil {
		c.wayBack(s, s, c.mapped(), "is mapped statelessly")
	}
}

// mapped is the forwarded packets that stateless maps are about, by their
// inner addresses, both ways.
func (c *checker) mapped() []box {
	var all []box
	for _, n := range c.policy.NAT {
		if n.Kind != policy.Map || !n.Stateless {
			continue
		}
		inside := addrset.Of(n.Inside.Range)
		behind := c.interfacesOf(inside)
		for _, family := range []int{4, 6} {
			for side, iface := range map[int]int{source: in, destination: out} {
				b := c.universe(policy.Forward, family)
				b.addresses[side] = b.addresses[side].Intersect(inside)
				if len(behind) > 0 {
					b.numbers[iface] = b.numbers[iface].intersect(behind)
				}
				if !b.empty() {
					all = append(all, b)
				}
			}
		}
	}
	return all
}

// interfacesOf is the interfaces of the host whose networks hold some of the
// addresses; none where that is not known.
func (c *checker) interfacesOf(addresses addrset.Set) numbers {
	var all []span
	for _, i := range c.facts.Interfaces {
		for _, p := range i.Addresses {
			if addrset.FromPrefixes(p.Masked()).Overlaps(addresses) {
				n := c.names.index(i.Name)
				all = append(all, span{n, n})
			}
		}
	}
	return numbersOf(all...)
}

func (c *checker) wayBack(s, back *policy.Section, untracked []box, what string) {
	if len(untracked) == 0 {
		return
	}
	var decided []box
	for _, r := range s.Rules {
		if r.Action == policy.ClampMSS || r.Published {
			continue
		}
		packets := c.packets(s.Hook, r)
		if r.Action == policy.Allow && !hasPorts(c, r) {
			mine, ok := c.effort.minus(both(packets, untracked), decided)
			if ok && len(mine) > 0 && !c.allAllowed(back, c.mirrored(mine, back.Hook)) {
				c.report(NoWayBack, Warning, r.Pos, backHint(r, back.Hook),
					"this rule allows traffic that %s, and no rule allows its answers: untracked traffic has no replies", what)
			}
		}
		if ends(r) {
			decided = append(decided, packets...)
		}
	}
}

// hasPorts says whether the compiler can mirror a rule.
func hasPorts(c *checker, r *policy.Rule) bool {
	for _, w := range []*policy.Who{r.From, r.To} {
		if w == nil {
			continue
		}
		for _, item := range w.Items {
			if s := c.Sets[item.Name]; s != nil && s.IsEndpoints() {
				return true
			}
		}
	}
	if len(r.Services) == 0 {
		return false
	}
	for _, ref := range r.Services {
		for _, m := range ref.Matches {
			if m.Any || len(m.Ports) == 0 && m.Protocol != packet.ICMP {
				return false
			}
		}
	}
	return true
}

// mirrored is the answers to packets, as the section of a hook meets them.
func (c *checker) mirrored(packets []box, hook policy.Hook) []box {
	var all []box
	for _, b := range packets {
		family := 6
		if b.addresses[source].Has4() {
			family = 4
		}
		for protocol, ports := range portsOf(b.numbers[service]) {
			if protocol == packet.ICMP || protocol == packet.ICMPv6 {
				continue // answers to requests have types of their own
			}
			answer := c.universe(hook, family)
			answer.addresses[source], answer.addresses[destination] = b.addresses[destination], b.addresses[source]
			answer.numbers[service] = clientPorts(protocol)
			var from []span
			for _, p := range ports {
				from = append(from, span{uint64(p.From), uint64(p.To)})
			}
			answer.numbers[sourcePort] = numbersOf(from...)
			answer.numbers[original] = one(notRewritten)
			if hook == policy.Forward {
				answer.numbers[in], answer.numbers[out] = b.numbers[out], b.numbers[in]
			} else {
				answer.numbers[out] = b.numbers[in]
			}
			all = append(all, answer)
		}
	}
	return all
}

// clientPorts is where answers go: to ports that programs ask from.
func clientPorts(protocol uint8) numbers {
	whole := wholeProtocol(protocol)
	if whole.from == whole.to {
		return numbers{whole}
	}
	return numbers{wire(protocol, 1024, 65535)}
}

// backHint writes the rule that lets the answers through.
func backHint(r *policy.Rule, hook policy.Hook) string {
	words := []string{"allow"}
	if len(r.Services) > 0 {
		words = append(words, servicesText(r.Services))
	} else {
		words = append(words, "any")
	}
	if r.Family != 0 {
		words = append(words, map[int]string{4: "ipv4", 6: "ipv6"}[r.Family])
	}
	add := func(word string, w *policy.Who) {
		if w == nil {
			return
		}
		words = append(words, word)
		if w.Not {
			words = append(words, "not")
		}
		var items []string
		for _, item := range w.Items {
			items = append(items, itemText(item))
		}
		if len(items) == 1 {
			words = append(words, items[0])
		} else {
			words = append(words, "["+strings.Join(items, ", ")+"]")
		}
	}
	add("from", r.To)
	add("to", r.From)
	if r.In != nil {
		words = append(words, "out", r.In.Text)
	}
	if r.Out != nil && hook == policy.Forward {
		words = append(words, "in", r.Out.Text)
	}
	return "add to " + string(hook) + ": " + strings.Join(words, " ")
}
