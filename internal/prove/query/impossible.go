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
// interface's.
func impossibleHere(policies ...Compiled) (out []reach.Question) {
	facts := policies[0].Facts
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
