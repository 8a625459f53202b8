package check

import (
	"fmt"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// noClamp finds ways for TCP from a link with large packets into one with
// smaller ones, such as a tunnel, that no "clamp mss" is about. What Sluice
// passes of ICMP errors is enough for path MTU discovery; networks on the way
// that drop them are not in its hands.
func (c *checker) noClamp() {
	s := c.policy.Forward
	if s == nil || !c.facts.Known {
		return
	}
	c.noClampToSmall(s)
	for _, n := range c.policy.NAT {
		if n.Kind == policy.Map && n.Stateless && !c.clamped(s, c.mapped()) {
			c.report(NoClamp, Remark, n.Pos, "add to forward: clamp mss from INSIDE to OUTSIDE",
				"a stateless map does not rewrite the addresses inside ICMP errors, so path MTU discovery does not work through it, and no rule clamps the MSS")
			return
		}
	}
}

// sized are the interfaces that routing sees and whose packet size is known.
func (c *checker) sized() (all []host.Interface) {
	for _, i := range c.facts.Interfaces {
		if i.Up && i.Name != loopback && i.Master == "" && i.MTU > 0 {
			all = append(all, i)
		}
	}
	return all
}

func (c *checker) noClampToSmall(s *policy.Section) {
	told := map[string]bool{}
	for _, small := range c.sized() {
		for _, large := range c.sized() {
			if small.MTU >= large.MTU || told[small.Name] {
				continue
			}
			ways := c.tcpWays(large.Name, small.Name)
			for _, st := range c.standings(s) {
				if st.rule.Action != policy.Allow || st.rule.Published || !st.own || !st.known {
					continue
				}
				packets := realPackets(both(st.left, ways))
				if len(packets) == 0 || c.clamped(s, packets) {
					continue
				}
				told[small.Name] = true
				f := c.report(NoClamp, Remark, st.rule.Pos, fmt.Sprintf("add to forward: clamp mss out ZONE, for a zone with %s", small.Name),
					"this rule allows TCP between %s (MTU %d) and %s (MTU %d), and no rule clamps the MSS", large.Name, large.MTU, small.Name, small.MTU)
				c.shows(f, policy.Forward, packets[:1], st.rule)
				if f.Witness != nil {
					f.Witness.Packet.In, f.Witness.Packet.Out = large.Name, small.Name
					if len(packets[0].numbers[in].intersect(one(c.names.index(large.Name)))) == 0 {
						f.Witness.Packet.In, f.Witness.Packet.Out = small.Name, large.Name
					}
				}
				break
			}
		}
	}
}

// tcpWays is TCP between two interfaces, both ways.
func (c *checker) tcpWays(a, b string) (ways []box) {
	for _, family := range []int{4, 6} {
		u := c.universe(policy.Forward, family)
		u.numbers[service] = numbers{wholeProtocol(packet.TCP)}
		for _, pair := range [][2]string{{a, b}, {b, a}} {
			u.numbers[in], u.numbers[out] = one(c.names.index(pair[0])), one(c.names.index(pair[1]))
			ways = append(ways, u)
		}
	}
	return ways
}

// clamped says whether some clamp of forward is about any of the packets, or of
// their answers, whose size it lowers as well.
func (c *checker) clamped(s *policy.Section, packets []box) bool {
	for _, r := range s.Rules {
		if r.Action != policy.ClampMSS {
			continue
		}
		clamp := c.packets(s.Hook, r)
		if overlap(clamp, packets) || overlap(clamp, turned(packets)) {
			return true
		}
	}
	return false
}

// turned is packets the other way round, by sides alone.
func turned(packets []box) []box {
	all := make([]box, len(packets))
	for i, b := range packets {
		b.numbers[in], b.numbers[out] = b.numbers[out], b.numbers[in]
		b.addresses[source], b.addresses[destination] = b.addresses[destination], b.addresses[source]
		b.numbers[service], b.numbers[sourcePort] = numbers{wholeProtocol(packet.TCP)}, numbers{{0, 65535}}
		b.numbers[original] = one(notRewritten)
		all[i] = b
	}
	return all
}
