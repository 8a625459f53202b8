// Package reference says what a policy means for one packet, by the shortest
// way from the language's text to an answer: it walks the policy's own rules in
// their order and asks each word. It shares nothing with the compiler but the
// policy and its resolved names, so that the two can be held against each other
// and against the kernel. Tests call it; it is slow and has no state.
package reference

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/packet"
	"sluice/internal/policy"
	"sluice/internal/resolve"
)

// Answer is what becomes of a packet.
type Answer struct {
	Action policy.Action // Allow, Drop or Reject
	// Why is the rule's text, "default", or one of the things that hold
	// without being written: "loopback", "ban", "needed by IP", "known flow",
	// "invalid", "DHCP answer", "not policed".
	Why string
}

// Judge says what the policy does with a packet at one hook. Limits and bounds
// of connections count as not reached. What the packet's fields leave unknown
// is taken as no.
//
// Judged are packets that connection tracking knows, and those that open a
// flow. Answers of untracked flows are judged by [Answers].
func Judge(r *resolve.Resolved, p packet.Packet, hook policy.Hook) Answer {
	j := judge{r, p, hook}
	if p.In == "lo" || p.Out == "lo" {
		return Answer{policy.Allow, "loopback"}
	}
	if j.banned(p.Source) || j.banned(p.Destination) {
		return Answer{policy.Drop, "ban"}
	}
	section := j.section()
	if section == nil {
		return Answer{policy.Allow, "not policed"}
	}
	if j.needed() {
		return Answer{policy.Allow, "needed by IP"}
	}
	// Questions of ICMP are asked before known flows: a limit counts each.
	if (p.State == packet.Established || p.State == packet.Related) && !j.question() {
		return Answer{policy.Allow, "known flow"}
	}
	if p.State == packet.Invalid && !r.Policy.Tracking.InvalidAllow {
		return Answer{policy.Drop, "invalid"}
	}
	if j.dhcpAnswer() {
		return Answer{policy.Allow, "DHCP answer"}
	}
	for _, rule := range slices.Concat(section.Rules, j.publishedElsewhere()) {
		if rule.Action != policy.ClampMSS && j.matches(rule) {
			return Answer{rule.Action, rule.Text}
		}
	}
	return Answer{section.Default, "default"}
}

// publishedElsewhere are the rules about published services of the other of
// input and forward: they hold in both, behind a section's own rules.
func (j judge) publishedElsewhere() (out []*policy.Rule) {
	other := map[policy.Hook]*policy.Section{policy.Input: j.Policy.Forward, policy.Forward: j.Policy.Input}[j.hook]
	if other == nil {
		return nil
	}
	for _, rule := range other.Rules {
		if rule.Published {
			out = append(out, rule)
		}
	}
	return out
}

// Answers says whether a packet of an untracked flow passes as what a service
// sends back: the mirror of a packet that a rule with ports allows, and for TCP
// no bare SYN.
func Answers(r *resolve.Resolved, p packet.Packet, hook policy.Hook) bool {
	if !p.HasPorts() || p.Protocol == packet.TCP && p.Flags&(packet.SYN|packet.ACK) == packet.SYN {
		return false
	}
	mirrored := map[policy.Hook]policy.Hook{policy.Input: policy.Output, policy.Output: policy.Input, policy.Forward: policy.Forward}
	j := judge{r, p.Mirror(), mirrored[hook]}
	if j.banned(p.Source) || j.banned(p.Destination) {
		return false
	}
	section := j.section()
	if section == nil {
		return false
	}
	for _, rule := range section.Rules {
		if j.matches(rule) {
			return rule.Action == policy.Allow && hasPorts(rule)
		}
	}
	return false
}

func hasPorts(rule *policy.Rule) bool {
	return slices.ContainsFunc(rule.Services, func(s policy.ServiceRef) bool {
		return slices.ContainsFunc(s.Matches, func(m policy.ServiceMatch) bool { return len(m.Ports) > 0 })
	})
}

type judge struct {
	*resolve.Resolved
	packet packet.Packet
	hook   policy.Hook
}

func (j judge) section() *policy.Section {
	switch j.hook {
	case policy.Input:
		return j.Policy.Input
	case policy.Output:
		return j.Policy.Output
	}
	return j.Policy.Forward
}

func (j judge) banned(a netip.Addr) bool {
	own := a == j.packet.Source && j.packet.SourceLocal == packet.Yes || a == j.packet.Destination && j.packet.DestinationLocal == packet.Yes
	if own || a.IsLoopback() || a.IsLinkLocalUnicast() || j.neighbourDiscovery() {
		return false
	}
	in := func(lists []policy.Who) bool {
		return slices.ContainsFunc(lists, func(w policy.Who) bool {
			return slices.ContainsFunc(w.Items, func(i policy.WhoItem) bool { return j.holds(i, a) })
		})
	}
	return in(j.Policy.Ban) && !in(j.Policy.NeverBan)
}

// holds says whether an address is one of a set's or a literal's.
func (j judge) holds(i policy.WhoItem, a netip.Addr) bool {
	if i.Name == "" {
		return i.Literal.From.Compare(a) <= 0 && a.Compare(i.Literal.To) <= 0 && i.Literal.From.Is4() == a.Is4()
	}
	set := j.Sets[i.Name]
	return set != nil && set.Addresses.Contains(a)
}

func (j judge) neighbourDiscovery() bool {
	return j.packet.Protocol == packet.ICMPv6 && j.packet.HopLimit == 255 &&
		slices.Contains([]uint8{133, 134, 135, 136, 141, 142, 148, 149}, j.packet.ICMPType)
}

// needed is what IP does not work without.
func (j judge) needed() bool {
	switch j.packet.Protocol {
	case packet.ICMP:
		return slices.Contains([]uint8{3, 11, 12}, j.packet.ICMPType)
	case packet.ICMPv6:
		if slices.Contains([]uint8{1, 2, 3, 4}, j.packet.ICMPType) {
			return true
		}
		if j.hook == policy.Forward {
			return false
		}
		listeners := slices.Contains([]uint8{130, 131, 132, 143}, j.packet.ICMPType)
		return j.neighbourDiscovery() || listeners && (j.packet.Source.IsLinkLocalUnicast() || j.packet.Source.IsUnspecified())
	}
	return false
}

func (j judge) question() bool {
	switch j.packet.Protocol {
	case packet.ICMP:
		return slices.Contains([]uint8{8, 13, 15, 17}, j.packet.ICMPType)
	case packet.ICMPv6:
		return j.packet.ICMPType == 128 || j.packet.ICMPType == 139
	}
	return false
}

func (j judge) dhcpAnswer() bool {
	p := j.packet
	if j.hook != policy.Input || p.Protocol != packet.UDP {
		return false
	}
	return p.Family() == 4 && p.SourcePort == 67 && p.Port == 68 ||
		p.Family() == 6 && p.SourcePort == 547 && p.Port == 546 && p.Source.IsLinkLocalUnicast()
}

func (j judge) matches(rule *policy.Rule) bool {
	p := j.packet
	if rule.Published {
		if !p.DNAT {
			return false
		}
		p.Port, p.Destination = p.Original.Port, p.Original.Destination
	}
	switch {
	case rule.Family != 0 && rule.Family != p.Family(),
		len(rule.Services) > 0 && !slices.ContainsFunc(rule.Services, func(s policy.ServiceRef) bool { return serves(s, p) }),
		!j.from(rule.From), !j.to(rule.To, p.Destination),
		rule.In != nil && !j.through(rule.In.Text, p.In), rule.Out != nil && !j.through(rule.Out.Text, p.Out):
		return false
	}
	return len(rule.Users) == 0 || p.Owner >= 0 && slices.ContainsFunc(rule.Users, func(u policy.Word) bool {
		return int64(j.Users[u.Text]) == p.Owner
	})
}

func serves(s policy.ServiceRef, p packet.Packet) bool {
	return slices.ContainsFunc(s.Matches, func(m policy.ServiceMatch) bool {
		switch {
		case m.Any:
			return true
		case m.ICMP != nil:
			return p.Protocol == packet.ICMP && int(p.ICMPType) == m.ICMP.V4 || p.Protocol == packet.ICMPv6 && int(p.ICMPType) == m.ICMP.V6
		case m.Protocol == packet.ICMP && p.Protocol == packet.ICMPv6:
			return true
		case m.Protocol != p.Protocol:
			return false
		}
		return len(m.Ports) == 0 || slices.ContainsFunc(m.Ports, func(r policy.PortRange) bool { return r.From <= p.Port && p.Port <= r.To })
	})
}

func (j judge) from(w *policy.Who) bool { return j.who(w, j.packet.Source, j.packet.In) }

func (j judge) to(w *policy.Who, destination netip.Addr) bool {
	return j.who(w, destination, j.packet.Out)
}

func (j judge) who(w *policy.Who, a netip.Addr, device string) bool {
	if w == nil {
		return true
	}
	found := slices.ContainsFunc(w.Items, func(i policy.WhoItem) bool {
		if zone := j.Zones[i.Name]; zone != nil {
			return j.through(i.Name, device) && (!zone.HasNetworks || zone.Networks.Contains(a))
		}
		return j.holds(i, a)
	})
	return found != w.Not
}

// through asks for a zone's interfaces alone; a zone without interfaces is on
// every one.
func (j judge) through(name, device string) bool {
	zone := j.Zones[name]
	return len(zone.Interfaces) == 0 || slices.ContainsFunc(zone.Interfaces, func(pattern string) bool {
		beginning, wild := strings.CutSuffix(pattern, "*")
		return pattern == device || wild && strings.HasPrefix(device, beginning)
	})
}
