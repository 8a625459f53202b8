package check

import (
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// unprovenBans remarks on limits that ban by packets whose source nothing proves:
// whoever forges them has somebody else banned.
func (c *checker) unprovenBans() {
	spared := c.spared()
	for _, s := range c.sections() {
		banned := c.banned(s.Hook)
		for _, r := range s.Rules {
			if r.Limit == nil || r.Limit.ThenBan == 0 {
				continue
			}
			var packets []box
			for _, b := range c.packets(s.Hook, r) {
				b.addresses[source] = b.addresses[source].Difference(spared)
				if !b.empty() {
					packets = append(packets, b)
				}
			}
			packets, ok := c.effort.minus(packets, banned)
			if !ok {
				continue
			}
			if packets = realPackets(c.unproven(s.Hook, r, packets)); len(packets) > 0 {
				it := "it"
				if r.Limit.Widen {
					it = "all of its network"
				}
				c.report(UnprovenBan, Remark, r.Limit.Pos, "remove \"then ban\", or add those who must not be banned to never-ban",
					"whoever forges a source address can get %s banned by this limit: no handshake proves the source of %s", it, c.unprovenText(r, packets))
			}
		}
	}
}

// unprovenPlaces remarks on connections per source that are counted by the kernel's
// entries alone, which whoever forges the source makes.
func (c *checker) unprovenPlaces() {
	for _, s := range c.sections() {
		if s.Hook == policy.Output {
			continue // what the host itself begins
		}
		for _, r := range s.Rules {
			if r.Max == nil || !r.Max.PerSource || r.Action != policy.Allow {
				continue
			}
			packets, what, fix := c.packets(s.Hook, r), "", "write a separate rule for TCP, and limit the rest"
			if r.Max.Count > policy.MostPlaces {
				what, fix = fmt.Sprintf("more than %d connections", policy.MostPlaces), fmt.Sprintf("allow each source at most %d connections", policy.MostPlaces)
			} else if packets = realPackets(without(packets, wholeProtocol(packet.TCP))); len(packets) > 0 {
				what = c.unprovenText(r, packets)
			}
			if what != "" {
				c.report(UnprovenPlaces, Remark, r.Max.Pos, fix,
					"whoever forges a source address can use up its connections: no handshake proves the source of %s", what)
			}
		}
	}
}

// unproven is those of a rule's packets that its limit counts as they come: what is no
// TCP, is not tracked, or is refused.
func (c *checker) unproven(hook policy.Hook, r *policy.Rule, packets []box) []box {
	if r.Action != policy.Allow {
		return packets
	}
	untracked := c.untracked()
	if hook == policy.Forward {
		untracked = c.mapped()
	}
	return append(without(packets, wholeProtocol(packet.TCP)), both(packets, untracked)...)
}

// unprovenText says what of a rule's packets nothing proves.
func (c *checker) unprovenText(r *policy.Rule, packets []box) string {
	if r.Action != policy.Allow {
		return "refused packets"
	}
	var words []string
	udp, icmp, icmp6 := wholeProtocol(packet.UDP), wholeProtocol(packet.ICMP), wholeProtocol(packet.ICMPv6)
	for _, kind := range []struct {
		name  string
		spans []span
	}{{"UDP", []span{udp}}, {"ICMP", []span{icmp, icmp6}}} {
		if slices.ContainsFunc(packets, func(b box) bool { return len(b.numbers[service].intersect(numbersOf(kind.spans...))) > 0 }) {
			words = append(words, kind.name)
		}
	}
	tcp := wholeProtocol(packet.TCP)
	if len(without(packets, tcp, udp, icmp, icmp6)) > 0 {
		words = append(words, "protocols other than TCP")
	}
	if slices.ContainsFunc(packets, func(b box) bool { return len(b.numbers[service].intersect(numbers{tcp})) > 0 }) {
		words = append(words, "untracked TCP")
	}
	return english.List(words)
}

// without takes protocols out of packets.
func without(packets []box, protocols ...span) []box {
	var out []box
	for _, b := range packets {
		b.numbers[service] = b.numbers[service].minus(numbersOf(protocols...))
		if !b.empty() {
			out = append(out, b)
		}
	}
	return out
}
