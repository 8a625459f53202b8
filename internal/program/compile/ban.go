package compile

import (
	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

const (
	bannedChain   = "banned"
	bannedToChain = "banned_to"
	// bannedByLimitChain is asked of who is banned by a limit.
	bannedByLimitChain = "banned_by_limit"
	neverBanSet        = "limit.never-banned"
	// banCommand is the set of what commands ban.
	banCommand = "ban.command"
)

// bans records what is dropped from and to banned addresses, flows that
// exist included. The meaning is "on input, forward and output"; the optimizer
// moves it to the first hook that such a packet meets.
func (c *compiler) bans() {
	parts := c.banParts()
	byLimit := c.sets[limitBanned]
	byCommand := c.policed()
	if len(parts) == 0 && !byLimit && !byCommand {
		return
	}
	c.chain(bannedChain, "from and to banned addresses")
	c.chain(bannedToChain, "to banned addresses")
	for _, chain := range []string{bannedChain, bannedToChain} {
		c.append(chain, program.Rule{Match: neighbours(), Actions: []program.Action{program.Return}, Comment: "neighbour discovery is never banned"})
	}
	c.overBans()
	if byLimit {
		part := banPart{set: limitBanned, counter: "ban_by_limit", never: []string{c.neverBan(), c.exempt()}, counted: c.limitThatBans()}
		parts = append(parts, part)
		if c.sets[program.WidenedSet] {
			part.set = program.WidenedSet
			parts = append(parts, part)
		}
	}
	if byCommand {
		parts = append(parts, c.commandBans())
	}
	for _, p := range parts {
		c.banRules(p)
	}
	for _, hook := range []program.HookKind{program.Input, program.Forward, program.Output} {
		chain := c.base(hook, program.Filter, string(hook), "bans; the policy leaves "+string(hook)+" open")
		to := bannedChain
		if hook == program.Output {
			to = bannedToChain
		}
		c.append(chain.Name, program.Rule{Stage: program.StageBan, Actions: []program.Action{program.Jump{Chain: to}}})
	}
}

// policed says whether a section of the policy decides anything. Where none
// does, Sluice keeps out of the packets' way, bans by command included.
func (c *compiler) policed() bool {
	return c.policy.Input != nil || c.policy.Forward != nil || c.policy.Output != nil
}

// commandBans is what commands ban, in a set apart from those of the policy:
// the policy says what is in its own, and a roll-back brings their contents
// back, while a ban by command outlives policies. A backend asks the set only
// while there are such bans, so that without them it costs no packet anything;
// merged with a set of the policy, bans by command would be asked always, and
// the counters of both lines would be one.
func (c *compiler) commandBans() banPart {
	if !c.sets[banCommand] {
		c.sets[banCommand] = true
		c.program.Sets = append(c.program.Sets, program.Set{
			ID: banCommand, Key: []program.Field{program.Source}, Life: program.Dynamic, Counters: true, Commands: true,
			Never: c.neverBanAddresses().Union(policy.NeverBanned),
		})
	}
	return banPart{
		set: banCommand, counter: "ban_by_command",
		counted: program.Origin{Text: "banned by: sluice ban"},
	}
}

// banRules drops what comes from the set and what goes to it. The host's own
// addresses are never banned, and only the routing table knows them all. To ask it of a
// source costs more than all else that is done to a banned packet, so the sets of a policy
// are made without the addresses that the host has.
func (c *compiler) banRules(p banPart) {
	if p.counted == (program.Origin{}) {
		p.counted = p.origin
	}
	actions := c.counted(p.counter, p.counted, "banned by "+p.set, program.Drop)
	if p.set == limitBanned || p.set == program.WidenedSet {
		if c.program.Chain(bannedByLimitChain) == nil {
			c.beginnings(actions)
		}
		actions = []program.Action{program.Jump{Chain: bannedByLimitChain}}
	}
	from := program.Rule{Match: p.match(program.Source), Actions: actions, Origin: p.origin, Comment: "from " + p.set}
	if !p.notOwn {
		from.Match = match(from.Match).and(not(fromHost))
	}
	to := program.Rule{Match: p.match(program.Destination).and(not(toHost)), Actions: actions, Origin: p.origin, Comment: "to " + p.set}
	if len(c.program.OverBans) > 0 {
		c.append(bannedSourceChain, from)
		c.append(bannedDestinationChain, to)
		return
	}
	c.append(bannedChain, from, to)
	c.append(bannedToChain, to)
}

// beginnings makes the chain that does to what begins a flow what is done to whoever is
// banned by a limit. Flows that live go on: what set the limit off may have been
// forged. Requests of ICMP are asked one by one, as the rules ask them.
func (c *compiler) beginnings(actions []program.Action) {
	c.chain(bannedByLimitChain, "what banned addresses may not begin; flows that live go on")
	known := names(program.State, "established", "related")
	spare := func(comment string, m ...program.Condition) {
		c.append(bannedByLimitChain, program.Rule{Match: m, Actions: []program.Action{program.Return}, Comment: comment})
	}
	spare("a flow that lives", names(program.State, "established"), not(numbers(program.Protocol, packet.ICMP, packet.ICMPv6)))
	spare("a flow that lives", known, protocol(packet.ICMP), not(numbers(program.ICMPType, icmpRequests...)))
	spare("a flow that lives", known, protocol(packet.ICMPv6), not(numbers(program.ICMPv6Type, icmpv6Request...)))
	c.append(bannedByLimitChain, program.Rule{Actions: actions})
}

// banPart is one set of the bans.
type banPart struct {
	set, counter string
	never        []string // sets that win over it where its own elements do not leave that out
	notOwn       bool     // it has no address of the host's
	origin       program.Origin
	counted      program.Origin // of the counter, where the rules have none
}

// limitThatBans is the first rule whose limit bans: where the counter of such
// bans comes from. The rules that drop are of no single line.
func (c *compiler) limitThatBans() program.Origin {
	o := c.program.Set(limitBanned).Origin
	o.Text = "banned by: " + o.Text
	return o
}

// match gives the conditions that an address of the packet is banned.
func (p banPart) match(f program.Field) match {
	m := match{inSet(f, p.set)}
	for _, set := range p.never {
		m = m.and(not(inSet(f, set)))
	}
	return m
}

// banParts gives the policy's bans, each without what is never banned.
func (c *compiler) banParts() []banPart {
	never, own := c.neverBanAddresses().Union(policy.NeverBanned), addrset.Set{}
	notOwn := c.Facts.Known
	if notOwn {
		own, _ = c.Facts.Addresses()
		own = own.Difference(never)
		never = never.Union(own)
	}
	var banned addrset.Set
	var out []banPart
	var literal addrset.Set
	var literalAt program.Origin
	for _, w := range c.policy.Ban {
		for _, item := range w.Items {
			switch set := c.Sets[item.Name]; {
			case item.Name == "":
				literal = literal.Union(addrset.Of(item.Literal))
				literalAt = originOf(w.Pos, "ban")
			case set != nil:
				banned = banned.Union(set.Addresses)
				keep := set.Addresses.Difference(never)
				if keep.IsEmpty() && !set.Expires {
					continue
				}
				id := c.elements("ban."+set.Name, set, keep)
				out = append(out, banPart{set: id, notOwn: notOwn, counter: "ban_" + set.Name, origin: originOf(item.Pos, "ban: "+set.Name)})
			}
		}
	}
	spared := banned.Union(literal).Intersect(own)
	if literal = literal.Difference(never); !literal.IsEmpty() {
		id := c.addressSet("literal.ban", literal, literalAt)
		out = append(out, banPart{set: id, notOwn: notOwn, counter: "ban_addresses", origin: literalAt})
	}
	if notOwn && (len(out) > 0 || !spared.IsEmpty()) {
		c.program.Rests = append(c.program.Rests, program.Rest{Unbanned: true, Spared: spared.Ranges()})
	}
	return out
}

func (c *compiler) neverBanAddresses() addrset.Set {
	var out addrset.Set
	for _, w := range c.policy.NeverBan {
		out = out.Union(c.whoAddresses(&w))
	}
	return out
}

// whoAddresses is the addresses of a side that names no interfaces.
func (c *compiler) whoAddresses(w *policy.Who) addrset.Set {
	var out addrset.Set
	for _, item := range w.Items {
		switch {
		case item.Name == "":
			out = out.Union(addrset.Of(item.Literal))
		case c.Sets[item.Name] != nil:
			out = out.Union(c.Sets[item.Name].Addresses)
		case c.Zones[item.Name] != nil:
			out = out.Union(c.Zones[item.Name].Networks)
		}
	}
	return out
}

// neverBan gives the id of the set of what no limit bans. A ban by limit holds
// for 64 bits of an IPv6 address, so that one link-local source would be all
// neighbours.
func (c *compiler) neverBan() string {
	return c.addressSet(neverBanSet, c.neverBanAddresses().Union(policy.NeverBanned), program.Origin{})
}

// exempt gives the id of the set of those whom no ban by a limit hits at the moment,
// since what sets a limit off may be forged in their name. It is asked where such bans
// hold, so that whoever gets into it is exempt from a ban that he is under already.
func (c *compiler) exempt() string {
	if !c.sets[program.ExemptSet] {
		c.sets[program.ExemptSet] = true
		set := program.Set{ID: program.ExemptSet, Key: []program.Field{program.Source}, Life: program.Followed, Follow: &program.Following{}}
		set.Hold(program.Held{Addresses: c.Facts.Exempt()})
		c.program.Sets = append(c.program.Sets, set)
	}
	return program.ExemptSet
}
