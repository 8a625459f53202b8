package compile

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// logRate bounds what one rule writes to the kernel log.
var logRate = program.Rate{Packets: 5, Per: 1000, Burst: 10}

// rule gives the program rules of one policy rule at a hook. Asked again, for a rule
// that is in two chains, it gives the same id and with it the same counter.
func (c *compiler) rule(r *policy.Rule, hook policy.Hook) []program.Rule {
	id := c.ruleIDs[r]
	matches := c.ruleMatches(r, straight)
	o := originOf(r.Pos, r.Text)
	if c.proves(r, hook) {
		return c.provenRules(r, hook, matches, o)
	}
	var gates []program.Action
	if r.Limit != nil {
		gates = append(gates, c.limit(id, r.Limit, o))
	}
	return c.rules(id, id, matches, c.actions(r, append(gates, c.most(r, o)...)...), o)
}

// actions is what a rule does, behind its limits.
func (c *compiler) actions(r *policy.Rule, first ...program.Action) []program.Action {
	id, o := c.ruleIDs[r], originOf(r.Pos, r.Text)
	actions := append(slices.Clone(first), c.counted(id, o, r.Text)...)
	if r.Log != nil {
		return append(actions, c.logged(id, *r.Log, o, verdict(r.Action))...)
	}
	return append(actions, verdict(r.Action))
}

// rules gives a rule for each way to match. What a rule bounds it bounds for
// all its ways together, so a limit and a log move to a chain of their own
// where there are several.
func (c *compiler) rules(id, chain string, matches []match, actions []program.Action, o program.Origin) []program.Rule {
	if len(matches) > 1 && gated(actions) {
		if c.program.Chain(chain) == nil {
			c.chain(chain, o.Text)
			c.append(chain, program.Rule{ID: id, Actions: actions, Origin: o})
		}
		actions = []program.Action{program.Jump{Chain: chain}}
	}
	out := make([]program.Rule, 0, len(matches))
	for _, m := range matches {
		out = append(out, program.Rule{Stage: program.StageRules, ID: id, Match: m, Actions: actions, Origin: o})
	}
	return out
}

func gated(actions []program.Action) bool {
	return slices.ContainsFunc(actions, func(a program.Action) bool { return program.EffectOf(a).Bounds })
}

func verdict(a policy.Action) program.Action {
	switch a {
	case policy.Drop:
		return program.Drop
	case policy.Reject:
		return program.Reject
	}
	return program.Accept
}

// ruleMatches gives the ways in which a packet fits a rule's words, straight
// or for the answers.
func (c *compiler) ruleMatches(r *policy.Rule, d direction) []match {
	var first match
	if r.Family != 0 {
		first = match{family(r.Family)}
	}
	first = first.and(c.zoneInterface(r.In, d.in)...).and(c.zoneInterface(r.Out, d.out)...)
	if len(r.Users) > 0 {
		ids := make([]uint64, len(r.Users))
		for i, u := range r.Users {
			ids[i] = uint64(c.Users[u.Text])
		}
		first = first.and(numbers(program.Owner, sorted(ids)...))
	}
	if !r.Until.IsZero() {
		first = first.and(program.Before(r.Until))
	}
	port, destination := d.destinationPort, d.destination
	if r.Published {
		first = first.and(names(program.Status, "dnat"))
		port, destination = program.OriginalPort, program.OriginalDestination
	}
	var out []match
	for _, service := range services(r.Services, port) {
		for _, from := range c.who(r.From, side{address: d.source, iface: d.in}) {
			for _, to := range c.who(r.To, side{address: destination, iface: d.out}) {
				m := first.and(service...).and(from...).and(to...)
				if possible(m) {
					out = append(out, m)
				}
			}
		}
	}
	return out
}

// possible says whether the families that the conditions name are not apart:
// ICMP is IPv4's, ICMPv6 is IPv6's.
func possible(m match) bool {
	four, six := true, true
	only := func(n uint64) {
		four, six = four && n == 4, six && n == 6
	}
	for _, c := range m {
		if c.Not || len(c.Numbers) != 1 {
			continue
		}
		switch n := c.Numbers[0].From; {
		case c.Field == program.Family:
			only(n)
		case c.Field == program.Protocol && n == packet.ICMP:
			only(4)
		case c.Field == program.Protocol && n == packet.ICMPv6:
			only(6)
		}
	}
	return four || six
}
