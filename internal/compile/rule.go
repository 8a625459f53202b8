package compile

import (
	"fmt"

	"sluice/internal/policy"
	"sluice/internal/program"
)

// Bounds of the tables that the kernel fills, in entries; an IPv4 and an IPv6
// table each.
const (
	limitTableSize = 65536
	banTableSize   = 65536
)

// limitBanned is the set of sources that a limit with "then ban" banned.
const limitBanned = "limit.banned"

// logRate bounds what one rule writes to the kernel log.
var logRate = program.Rate{Packets: 5, Per: 1000, Burst: 10}

// rule gives the program rules of one policy rule. Asked again, for a rule that
// stands in two chains, it gives the same id and with it the same counter.
func (c *compiler) rule(r *policy.Rule) []program.Rule {
	id := c.ruleIDs[r]
	matches := c.ruleMatches(r, straight)
	o := originOf(r.Pos, r.Text)
	actions := []program.Action{}
	if r.Limit != nil {
		actions = append(actions, c.limit(id, r.Limit, o))
	}
	if r.Max != nil {
		actions = append(actions, c.connectionLimit(id, r.Max, o))
	}
	actions = append(actions, c.counter(id, o, r.Text))
	if r.Log != nil {
		actions = append(actions, program.Log{Prefix: *r.Log, Rate: logRate})
	}
	actions = append(actions, verdict(r.Action))
	return c.rules(id, matches, actions, o)
}

// rules gives a rule for each way to match. What a rule bounds it bounds for
// all its ways together, so a limit and a log move to a chain of their own
// where there are several.
func (c *compiler) rules(id string, matches []match, actions []program.Action, o program.Origin) []program.Rule {
	if len(matches) > 1 && gated(actions) {
		if c.program.Chain(id) == nil {
			c.chain(id, o.Text)
			c.append(id, program.Rule{ID: id, Actions: actions, Origin: o})
		}
		actions = []program.Action{program.Jump{Chain: id}}
	}
	out := make([]program.Rule, 0, len(matches))
	for _, m := range matches {
		out = append(out, program.Rule{Stage: program.StageRules, ID: id, Match: m, Actions: actions, Origin: o})
	}
	return out
}

func gated(actions []program.Action) bool {
	for _, a := range actions {
		switch a.(type) {
		case program.Limit, program.ConnectionLimit, program.Log:
			return true
		}
	}
	return false
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
		case c.Field == program.Protocol && n == protoICMP:
			only(4)
		case c.Field == program.Protocol && n == protoICMPv6:
			only(6)
		}
	}
	return four || six
}

// limit gives the gate of a rate. A table of sources forgets a source when it
// has been silent for twice the time in which its bucket fills, a minute at
// the least.
func (c *compiler) limit(id string, l *policy.Limit, o program.Origin) program.Action {
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	out := program.Limit{
		Name: "limit-" + id,
		Rate: program.Rate{Packets: l.Count, Per: uint64(l.Per.Milliseconds()), Burst: burst},
	}
	if !l.PerSource {
		return out
	}
	out.Per = program.PerSource
	refill := 2 * uint64(l.Per.Milliseconds()) * max(1, (burst+l.Count-1)/l.Count)
	out.Table = c.dynamicSet("limit."+id, limitTableSize, max(60_000, refill), o)
	out.FullCounter = out.Name + "-full"
	c.counter(out.FullCounter, o, "sources that found the table of "+id+" full")
	if l.ThenBan > 0 {
		out.Ban = c.dynamicSet(limitBanned, banTableSize, uint64(l.ThenBan.Milliseconds()), o)
		c.program.Set(out.Ban).Counters = true // sluice bans shows the hits of each
		out.BanTimeout = uint64(l.ThenBan.Milliseconds())
		out.NeverBan = c.neverBan()
	}
	return out
}

func (c *compiler) connectionLimit(id string, m *policy.MaxConnections, o program.Origin) program.Action {
	out := program.ConnectionLimit{Name: "connections-" + id, Max: m.Count}
	if m.PerSource {
		out.Per = program.PerSource
		out.Table = c.dynamicSet("connections."+id, limitTableSize, 0, o)
		out.FullCounter = out.Name + "-full"
		c.counter(out.FullCounter, o, fmt.Sprintf("sources that found the table of %s full", id))
	}
	return out
}
