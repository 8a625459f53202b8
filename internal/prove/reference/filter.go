package reference

import (
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// The stages of a section, in their order. Each decides, or notes why it does
// not.

func (w *walk) section() *policy.Section {
	switch w.hook {
	case policy.Input:
		return w.Policy.Input
	case policy.Output:
		return w.Policy.Output
	}
	return w.Policy.Forward
}

func (w *walk) loopback() {
	if w.hook == policy.Input && w.packet.In == loopback || w.hook == policy.Output && w.packet.Out == loopback {
		w.ends(policy.Allow, "loopback", noPos, "", "the host may always talk to itself")
	}
}

// held holds who comes by the interface of a guest to the guest's own addresses, in flows
// that are known too.
func (w *walk) held() {
	if w.hook == policy.Output {
		return
	}
	for i := range w.Policy.Held {
		h := &w.Policy.Held[i]
		if h.Interface.Text != w.packet.In {
			continue
		}
		own := func(r policy.Range) bool { return r.Range.Contains(w.packet.Source) }
		switch {
		case slices.ContainsFunc(h.Addresses, own):
			w.step("held", h.Pos, h.Text, w.because("%s is an address of "+h.Guest, w.packet.Source))
		case w.packet.Source.IsUnspecified(), w.packet.Source.Is6() && w.packet.Source.IsLinkLocalUnicast():
			w.step("held", h.Pos, h.Text, w.because("%s is link-local, or used by a machine without an address", w.packet.Source))
		default:
			w.ends(policy.Drop, "held", h.Pos, h.Text, w.packet.Source.String()+" is not an address of "+h.Guest+", which is attached to "+h.Interface.Text)
		}
	}
}

// clamp notes the rules that lower the segment size of a connection. They decide
// nothing, and hold for known connections too, whose SYN-ACK says one as well.
func (w *walk) clamp() {
	if w.hook != policy.Forward || w.Policy.Forward == nil || w.packet.Protocol != packet.TCP || w.packet.Flags&(packet.SYN|packet.RST) != packet.SYN {
		return
	}
	for _, rule := range w.Policy.Forward.Rules {
		if rule.Action != policy.ClampMSS {
			continue
		}
		if _, ok := w.fits(rule, w.packet); ok {
			w.step("rewrite", rule.Pos, rule.Text, "the segment size is lowered to what the route carries")
		}
	}
}

func (w *walk) ban() {
	type end struct {
		address netip.Addr
		over    *policy.Rule // by which it is allowed in spite of bans
	}
	ends := []end{{w.packet.Source, w.overBan(true)}, {w.packet.Destination, w.overBan(false)}}
	neighbour := w.neighbourly()
	w.over = OverBan{neighbour || ends[0].over != nil, neighbour || ends[1].over != nil}
	switch w.hook {
	case policy.Input: // the destination is this host, or all who hear
		ends = ends[:1]
	case policy.Output:
		ends = ends[1:]
	}
	if len(w.Policy.Ban) == 0 {
		return
	}
	if neighbour {
		w.step("ban", noPos, "", "neighbour discovery is never banned")
		return
	}
	for _, e := range ends {
		switch item, text, spared := w.banned(e.address); {
		case item == nil:
			w.step("ban", noPos, "", w.because("%s is not banned", e.address))
		case spared != "":
			w.step("ban", item.Pos, text, e.address.String()+" "+spared)
		case e.over != nil:
			w.step("ban", e.over.Pos, e.over.Text, e.address.String()+" is allowed in spite of bans")
		default:
			w.ends(policy.Drop, "ban", item.Pos, text, e.address.String()+" is banned")
			return
		}
	}
}

// banned finds the entry of ban that holds an address, and why the address is
// not banned anyway.
func (w *walk) banned(a netip.Addr) (found *policy.WhoItem, text, spared string) {
	found = w.listed(w.Policy.Ban, a)
	if found == nil {
		return nil, "", ""
	}
	text = "ban: " + itemText(*found)
	if a == w.packet.Source && w.packet.SourceLocal == packet.Yes || a == w.packet.Destination && w.packet.DestinationLocal == packet.Yes {
		return found, text, "is an address of this host and is never banned"
	}
	return found, text, w.spared(a)
}

// spared says why no ban holds for an address; "" where a ban does.
func (w *walk) spared(a netip.Addr) string {
	switch {
	case a.IsLoopback(), a.IsLinkLocalUnicast():
		return "is a link-local or loopback address and is never banned"
	case a.IsMulticast(), a == broadcast, a.IsUnspecified():
		return "is not the address of a host and is never banned"
	}
	if never := w.listed(w.Policy.NeverBan, a); never != nil {
		return "is never banned: " + itemText(*never) + " at " + never.Pos.String()
	}
	return ""
}

// NeverBanned says whether no ban holds for an address, also none by command:
// it is the host's own as its facts have it, nobody's, or of never-ban.
func NeverBanned(r *resolve.Resolved, a netip.Addr) bool {
	w := walk{Resolved: r, quiet: true}
	return Own(r.Facts, a) || w.spared(a) != ""
}

func (w *walk) listed(lists []policy.Who, a netip.Addr) *policy.WhoItem {
	for i := range lists {
		for k := range lists[i].Items {
			item := &lists[i].Items[k]
			if _, in := w.inItem(*item, a); in {
				return item
			}
		}
	}
	return nil
}

func (w *walk) policed() {
	if w.section() == nil {
		w.ends(policy.Allow, "open", noPos, "", "the policy has no "+string(w.hook)+", so it refuses nothing")
	}
}

func (w *walk) needed() {
	if p := w.packet.Protocol; p != packet.ICMP && p != packet.ICMPv6 {
		return
	}
	if what := w.isNeeded(); what != "" {
		w.ends(policy.Allow, "needed", noPos, "", "the network needs "+what)
		return
	}
	if p := w.packet; p.Protocol == packet.ICMP && slices.Contains(errors4, p.ICMPType) || p.Protocol == packet.ICMPv6 && slices.Contains(errors6, p.ICMPType) {
		w.step("needed", noPos, "", "an ICMP error passes if it is about a known connection or about untracked packets")
		return
	}
	w.step("needed", noPos, "", "the network works without this ICMP message")
}

func (w *walk) state() {
	switch {
	case w.packet.State != packet.Established && w.packet.State != packet.Related:
		w.step("state", noPos, "", w.because("the packet is %s and does not belong to a known connection", w.packet.State))
	case Requests(w.packet):
		w.step("state", noPos, "", "ICMP requests are decided one by one, known or not")
	case w.packet.State == packet.Related && w.packet.Protocol != packet.ICMP && w.packet.Protocol != packet.ICMPv6:
		w.step("state", noPos, "", "a known connection expects this new one: the rules are evaluated")
	case w.packet.State == packet.Related:
		w.ends(policy.Allow, "state", noPos, "", "it belongs to a known connection (related)")
	default:
		w.ends(policy.Allow, "state", noPos, "", "it belongs to a known connection")
	}
}

func (w *walk) invalid() {
	if w.packet.State != packet.Invalid {
		return
	}
	t := w.Policy.Tracking
	if t.InvalidAllow {
		w.step("invalid", t.InvalidPos, "invalid: allow", "the policy leaves invalid packets to the rules")
		return
	}
	text := ""
	if t.InvalidPos.Line != 0 {
		text = "invalid: drop"
	}
	w.ends(policy.Drop, "invalid", t.InvalidPos, text, "it belongs to no connection and begins none")
}

// answers are those that no state covers.
func (w *walk) answers() {
	p := &w.packet
	switch {
	case w.hook == policy.Input && p.Protocol == packet.UDP:
		if p.Family() == 4 && p.SourcePort == 67 && p.Port == 68 {
			w.ends(policy.Allow, "answers", noPos, "", "a reply to the DHCP of this host")
		}
		if p.Family() == 6 && p.SourcePort == 547 && p.Port == 546 && p.Source.IsLinkLocalUnicast() {
			w.ends(policy.Allow, "answers", noPos, "", "a reply to the DHCPv6 of this host")
		}
	case w.hook == policy.Output && p.State == packet.Untracked:
		w.untrackedAnswer()
	case w.hook == policy.Output && p.State == packet.Related && p.Protocol == packet.TCP && p.Flags&packet.RST != 0:
		w.ends(policy.Allow, "answers", noPos, "", "a reset of a known connection passes, because reject sends them")
	}
}

// untrackedAnswer: what bypasses tracking has no replies, so the rules of input
// are asked the other way round; and reject's resets pass.
func (w *walk) untrackedAnswer() {
	p := w.packet
	if len(w.Policy.Tracking.Bypass) == 0 && !w.mapsWithoutState() {
		return
	}
	if p.Protocol == packet.TCP && p.Flags&packet.RST != 0 {
		w.ends(policy.Allow, "answers", noPos, "", "a reset of an untracked connection passes, because reject sends them")
		return
	}
	asked := p.Mirror()
	service := false
	for i := range w.Policy.Tracking.Bypass {
		service = service || serviceIn(w.Policy.Tracking.Bypass[i].Services, asked)
	}
	if !service || opens(p) {
		return
	}
	input := w.Policy.Input
	if input != nil {
		for _, rule := range input.Rules {
			if action, ok := w.mirrored(rule); ok {
				w.ends(action, "answers", rule.Pos, rule.Text, "it is a reply of the service, decided like the rule of input")
				w.decided.Rule = rule
				return
			}
		}
	}
	if input == nil || input.Default == policy.Allow {
		w.ends(policy.Allow, "answers", noPos, "", "input is open to the bypassed service, so its replies pass")
		return
	}
	w.step("answers", noPos, "", "no rule of input allows the bypassed service to send it")
}

// opens says that a packet of TCP opens a connection: a SYN without ACK.
func opens(p packet.Packet) bool {
	return p.Protocol == packet.TCP && p.Flags&(packet.SYN|packet.ACK) == packet.SYN
}

func (w *walk) mapsWithoutState() bool {
	for _, n := range w.Policy.NAT {
		if n.Stateless {
			return true
		}
	}
	return false
}

// rules asks the section's own rules, then those about published services of
// the other of input and forward, which hold in both.
func (w *walk) rules() {
	mirrors := w.hook == policy.Forward && w.packet.State == packet.Untracked && w.mapsWithoutState()
	for _, rule := range w.section().Rules {
		if w.rule(rule); w.decided != nil {
			return
		}
		if !mirrors {
			continue
		}
		if action, ok := w.mirrored(rule); ok {
			w.ends(action, "rules", rule.Pos, rule.Text, "it is a reply to traffic that the rule allows and that is not tracked")
			w.decided.Rule = rule
			return
		}
	}
	other := map[policy.Hook]*policy.Section{policy.Input: w.Policy.Forward, policy.Forward: w.Policy.Input}[w.hook]
	if other == nil {
		return
	}
	for _, rule := range other.Rules {
		if rule.Published {
			if w.rule(rule); w.decided != nil {
				return
			}
		}
	}
}

func (w *walk) rule(rule *policy.Rule) {
	if rule.Action == policy.ClampMSS {
		return
	}
	why, ok := w.fits(rule, w.packet)
	if !ok {
		w.step("rules", rule.Pos, rule.Text, why)
		return
	}
	reason := "the packet matches the rule"
	if w.table != nil && w.table.spends(rule) {
		w.step("rules", rule.Pos, rule.Text, "the packet matches the rule, but its rate is used up")
		return
	}
	switch {
	case rule.Limit != nil:
		reason += ", within its rate limit"
	case rule.Max != nil:
		reason += ", within its connection limit"
	}
	w.ends(rule.Action, "rules", rule.Pos, rule.Text, reason)
	w.decided.Rule = rule
}

// spends takes a packet from the rate of a rule, and says whether there was none
// left. No time passes, so a rate is its burst.
func (f *Flows) spends(rule *policy.Rule) bool {
	l := rule.Limit
	if l == nil || l.PerSource {
		return false
	}
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	f.spent[rule]++
	return f.spent[rule] > burst
}

// mirrored says whether the packet is what answers a packet that the rule is
// about, and what happens to it. A rule without ports has no mirror, since
// nothing tells its answers from other traffic; what opens a connection is no
// answer; who is refused gets no answer either, whatever the refusal.
func (w *walk) mirrored(rule *policy.Rule) (policy.Action, bool) {
	if rule.Published || rule.Action == policy.ClampMSS || opens(w.packet) {
		return "", false
	}
	asked := w.packet.Mirror()
	if !portsIn(rule.Services, asked) {
		return "", false
	}
	if _, ok := w.fits(rule, asked); !ok {
		w.asked = nil
		return "", false
	}
	if rule.Action == policy.Allow {
		return policy.Allow, true
	}
	return policy.Drop, true
}

func (w *walk) fallback() {
	s := w.section()
	w.ends(s.Default, "default", s.DefaultPos, "default: "+string(s.Default), "no rule matches")
}
