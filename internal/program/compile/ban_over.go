package compile

import (
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// Chains of bans where somebody is let in over them: one for each end of a packet, since
// who is let in at one end says nothing about the other.
const (
	bannedSourceChain      = "banned_source"
	bannedDestinationChain = "banned_destination"
)

// overBans has what exceptions let in over bans asked before these: what a rule of such
// an exception is about, the answers to that, and errors of ICMP, which say no more than
// that something failed.
func (c *compiler) overBans() {
	if c.program.OverBans = c.overBan().Ranges(); len(c.program.OverBans) == 0 {
		return
	}
	source := program.Rule{Actions: []program.Action{program.Jump{Chain: bannedSourceChain}}}
	destination := program.Rule{Actions: []program.Action{program.Jump{Chain: bannedDestinationChain}}}
	c.append(bannedChain, source, destination)
	c.append(bannedToChain, destination)
	c.chain(bannedSourceChain, "whom packets come from")
	c.chain(bannedDestinationChain, "whom packets go to")
	for _, r := range c.policy.OverBans() {
		spare := func(chain, comment string, m match) {
			c.append(chain, program.Rule{
				Match: m, Actions: []program.Action{program.Return}, Origin: originOf(r.Pos, r.Text), Comment: comment,
			})
		}
		for _, m := range c.ruleMatches(r, straight) {
			spare(bannedSourceChain, "let in over bans", m)
		}
		for _, m := range c.ruleMatches(r, mirrored) {
			if m = withoutTypes(m); !r.Published && hasPorts(m) {
				spare(bannedDestinationChain, "answers without a state", noBareSYN(match{untracked}.and(m...)))
			}
			spare(bannedDestinationChain, "answers", m.and(names(program.Direction, "reply")))
		}
		if r.Published {
			continue
		}
		errors := match{protocol(packet.ICMP), numbers(program.ICMPType, icmpErrors...)}
		if r.From.Items[0].Literal.From.Is6() {
			errors = match{protocol(packet.ICMPv6), numbers(program.ICMPv6Type, icmpv6Errors...)}
		}
		if !r.Until.IsZero() {
			errors = errors.and(program.Before(r.Until))
		}
		who := addrset.Of(r.From.Items[0].Literal)
		spare(bannedSourceChain, "errors", errors.and(addresses(program.Source, who)))
		spare(bannedDestinationChain, "errors", errors.and(addresses(program.Destination, who)))
	}
}

// withoutTypes is a match for the answers to ICMP, which are of other types.
func withoutTypes(m match) match {
	return slices.DeleteFunc(slices.Clone(m), func(c program.Condition) bool {
		return c.Field == program.ICMPType || c.Field == program.ICMPv6Type
	})
}

// overBan is whom exceptions let in over bans.
func (c *compiler) overBan() (out addrset.Set) {
	for _, r := range c.policy.OverBans() {
		out = out.Union(addrset.Of(r.From.Items[0].Literal))
	}
	return out
}
