package query

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// impossibleHere are packets that a universe tells apart and that, as the facts of the host
// have it, there are not: those whose source is rewritten before any rule sees them, those
// that another tool leads elsewhere, where there is no such tool, or to many hosts, those
// for an address of the interface that they come in by, where the address is another
// interface's, those to this host that are for another one, and, whatever the facts, later
// fragments of neighbour discovery.
func impossibleHere(policies ...Compiled) (out []reach.Question) {
	facts := policies[0].Facts
	out = laterNeighbours(policies...)
	if !facts.Known {
		return out
	}
	out = append(out, rewrittenBefore("snat")...) // which comes last
	rewrites := func(f host.ForeignChain) bool { return f.Type == "nat" }
	if !slices.ContainsFunc(facts.ForeignChains, rewrites) && !foreignUnread(facts) {
		out = append(out, rewrittenBefore("dnat")...)
	}
	led := [][]program.Condition{{{Field: program.Status, Names: []string{"dnat"}}}}
	out = append(out, reach.Question{Way: reach.In, To: &groups, Match: led}) // no tool leads to many hosts
	if slices.ContainsFunc(policies, func(c Compiled) bool { return asksHere(c.Program) }) {
		match := elsewhereHere(facts)
		for _, way := range []reach.Way{reach.In, reach.Through} {
			out = append(out, reach.Question{Way: way, Match: match})
		}
	}
	if elsewhere := banned(policies).Difference(heard(policies)); !facts.NonLocalBind && !elsewhere.IsEmpty() {
		out = append(out, reach.Question{Way: reach.In, To: &elsewhere})
	}
	return out
}

// laterNeighbours are later fragments of neighbour discovery, which bans before a
// flowtable cannot tell. Nobody sends such, and the kernel takes none (RFC 6980).
func laterNeighbours(policies ...Compiled) (out []reach.Question) {
	if !slices.ContainsFunc(policies, func(c Compiled) bool { return len(c.Program.Flowtables) > 0 }) {
		return nil
	}
	match := []program.Condition{{Field: program.ICMPv6Type}, {Field: program.Fragment, Numbers: []program.NumberRange{{From: 1, To: 1}}}}
	for _, n := range icmpGroups[0].types {
		match[0].Numbers = append(match[0].Numbers, program.NumberRange{From: n, To: n})
	}
	for _, at := range ways {
		out = append(out, reach.Question{Way: at.Way, Match: [][]program.Condition{match}})
	}
	return out
}

// banned is the addresses that bans before a flowtable are about: they ask of every
// packet where it goes to.
func banned(policies []Compiled) (out addrset.Set) {
	for _, c := range policies {
		if len(c.Program.Flowtables) == 0 {
			continue
		}
		for _, w := range c.Policy.Ban {
			for _, item := range w.Items {
				if item.Name == "" {
					out = out.Union(addrset.Of(item.Literal))
				} else if set := c.Sets[item.Name]; set != nil {
					out = out.Union(set.Addresses)
				}
			}
		}
	}
	return out
}

// heard is what packets to this host are for when they come to it: its addresses, those
// of many hosts, and what NAT rewrites.
func heard(policies []Compiled) addrset.Set {
	own, broadcasts := policies[0].Facts.Addresses()
	out := own.Union(broadcasts).Union(loopback).Union(groups)
	for _, c := range policies {
		for _, n := range c.Policy.NAT {
			for _, r := range n.On {
				out = out.Union(addrset.Of(r.Range))
			}
			if n.Outside != nil {
				out = out.Union(addrset.Of(n.Outside.Range))
			}
		}
	}
	return out
}

// foreignUnread says that what other tools do was not read, or not all of it.
func foreignUnread(facts host.Facts) bool {
	return slices.ContainsFunc(facts.Unread, func(line string) bool {
		return strings.HasPrefix(line, host.UnreadNFTables) || strings.HasPrefix(line, host.UnreadLegacy)
	})
}

// asksHere says whether a program asks of a destination whether it is of the
// interface that the packet has come in by.
func asksHere(p *program.Program) bool {
	return slices.ContainsFunc(p.Chains, func(c program.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r program.Rule) bool {
			return slices.ContainsFunc(r.Match, func(m program.Condition) bool { return m.Field == program.DestinationHere })
		})
	})
}

// elsewhereHere is packets for an address of the interface that they come in by
// whose address is on another one.
func elsewhereHere(facts host.Facts) (match [][]program.Condition) {
	on := func(which func(string) bool) addrset.Set {
		var b addrset.Builder
		for _, i := range facts.Interfaces {
			if !which(i.Name) {
				continue
			}
			for _, a := range i.Addresses {
				b.AddAddr(a.Addr())
			}
		}
		return b.Set()
	}
	add := func(device program.Condition, addresses addrset.Set) {
		if addresses.IsEmpty() {
			return
		}
		match = append(match, []program.Condition{
			device,
			{Field: program.DestinationHere, Names: []string{"local"}},
			{Field: program.Destination, Addresses: addresses.Ranges()},
		})
	}
	var names []string
	for _, i := range facts.Interfaces {
		names = append(names, i.Name)
		mine := on(func(name string) bool { return name == i.Name })
		others := on(func(name string) bool { return name != i.Name })
		add(program.Condition{Field: program.InInterface, Names: []string{i.Name}}, others.Difference(mine))
	}
	if len(names) > 0 {
		add(program.Condition{Field: program.InInterface, Not: true, Names: names}, on(func(string) bool { return true }))
	}
	return match
}

// Here is the addresses of each interface of the host, for reach.Options; nil where
// nobody knows them, or where the host takes others for its own too.
func (c Compiled) Here() map[string]addrset.Set {
	if !c.Facts.Known || c.Facts.NonLocalBind {
		return nil
	}
	out := map[string]addrset.Set{}
	for _, i := range c.Facts.Interfaces {
		var b addrset.Builder
		for _, a := range i.Addresses {
			b.AddAddr(a.Addr())
		}
		out[i.Name] = b.Set()
	}
	return out
}
