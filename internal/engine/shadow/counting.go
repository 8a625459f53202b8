package shadow

import (
	"fmt"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// Owner is whose table a counting program becomes.
const Owner = "sluice_shadow"

// Bounds of the sets in which packets are noted, in entries of each hook and family.
// Full sets take some 2 MiB each.
const (
	sourcesSize   = 16384
	servicesSize  = 8192
	protocolsSize = 256
)

// hooks are where a policy judges, in the order of reports.
var hooks = []program.HookKind{program.Input, program.Forward, program.Output}

// Verdict is what the candidate would do with a packet.
type Verdict string

// Verdicts.
const (
	Allow    Verdict = "allow"
	Drop     Verdict = "drop"
	Reject   Verdict = "reject"
	Unjudged Verdict = "not judged"
)

// Line is what one counter stands for.
type Line struct {
	Counter string
	Hook    program.HookKind
	Verdict Verdict
	Origin  program.Origin // where the policy says it; no line where it holds without being written
	Text    string
}

// Legend says what the counters and sets of a counting program mean.
type Legend struct {
	Hooks []program.HookKind
	Lines []Line
	Full  []Line   // counters of sources that found the table of a limit full
	Notes []string // what is judged in another way than it would be enforced, or not at all
	// Tracks says that the candidate asks connection tracking.
	Tracks bool
}

// seen and passed are the counters of what enters a hook, and of what comes out of
// its filter chains.
func seen(hook program.HookKind) string   { return "seen." + string(hook) }
func passed(hook program.HookKind) string { return "passed." + string(hook) }

func sources(hook program.HookKind) string   { return "sources." + string(hook) }
func services(hook program.HookKind) string  { return "services." + string(hook) }
func protocols(hook program.HookKind) string { return "protocols." + string(hook) }

// Counting turns a program as package compile makes it, before any pass of the
// optimizer, into one that counts verdicts. What it cannot turn is an error: a
// mistake of Sluice. Banned is what commands ban, which every policy enforces.
func Counting(p *program.Program, banned addrset.Set) (*program.Program, *Legend, error) {
	c := &counting{
		from:     p,
		to:       &program.Program{Owner: Owner, Scope: p.Scope, Layout: p.Layout, CountsOnly: true},
		legend:   &Legend{},
		counters: map[string]bool{},
		made:     map[string]bool{},
	}
	c.sets(banned)
	for _, hook := range hooks {
		c.hook(hook)
	}
	c.notes()
	if c.err != nil {
		return nil, nil, c.err
	}
	if err := Checked(c.to); err != nil {
		return nil, nil, err
	}
	return c.to, c.legend, nil
}

// counting is one program on its way.
type counting struct {
	from     *program.Program
	to       *program.Program
	legend   *Legend
	counters map[string]bool
	made     map[string]bool // chains, by their new name
	// unlimited are lines whose limit of connections is taken as not reached.
	unlimited  []program.Origin
	handshakes bool // limits count SYNs instead
	err        error
}

func (c *counting) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("shadow: "+format, args...)
	}
}

// sets takes over the sets. That of commands holds what is banned at this moment, and
// is left out where that is nothing.
func (c *counting) sets(banned addrset.Set) {
	for _, s := range c.from.Sets {
		if s.Commands {
			s = program.Set{ID: s.ID, Key: s.Key, Life: program.Static, Addresses: banned.Difference(s.Never), Origin: s.Origin}
			if s.Addresses.IsEmpty() {
				continue
			}
		}
		c.to.Sets = append(c.to.Sets, s)
	}
}

// chain makes a chain and gives its place; pointers do not outlive the next one.
func (c *counting) chain(name, comment string) int {
	c.made[name] = true
	c.to.Chains = append(c.to.Chains, program.Chain{Name: name, Comment: comment})
	return len(c.to.Chains) - 1
}

func (c *counting) add(chain int, rules ...program.Rule) {
	c.to.Chains[chain].Rules = append(c.to.Chains[chain].Rules, rules...)
}

// count declares a counter once and gives the action that counts on it.
func (c *counting) count(name string, o program.Origin, comment string) program.Action {
	if !c.counters[name] {
		c.counters[name] = true
		c.to.Counters = append(c.to.Counters, program.Counter{Name: name, Origin: o, Comment: comment})
	}
	return program.Count{Counter: name}
}

// line is count for a verdict of the candidate.
func (c *counting) line(l Line) program.Action {
	if !c.counters[l.Counter] {
		c.legend.Lines = append(c.legend.Lines, l)
	}
	return c.count(l.Counter, l.Origin, l.Text)
}

// hook makes the base chains of a hook at which the candidate judges.
func (c *counting) hook(kind program.HookKind) {
	base := c.from.Base(kind, program.Filter)
	if base == nil {
		return
	}
	c.legend.Hooks = append(c.legend.Hooks, kind)
	at := c.chain(string(kind), "sees what comes to "+string(kind)+" and accepts all of it")
	c.to.Hooks = append(c.to.Hooks, program.Hook{Kind: kind, Phase: program.Watching, Default: program.Accept, Chain: string(kind)})
	c.noting(kind)

	h := &judging{counting: c, kind: kind}
	c.add(at, program.Rule{Stage: program.StageRules, Actions: []program.Action{c.count(seen(kind), program.Origin{}, "what came to "+string(kind))}})
	c.add(at, h.untracked()...)
	c.add(at, h.translated()...)
	c.add(at, program.Rule{Stage: program.StageRules, Actions: []program.Action{program.Goto{Chain: h.base()}}})

	last := c.chain(behind(kind), "what passed the filter chains of "+string(kind))
	c.to.Hooks = append(c.to.Hooks, program.Hook{Kind: kind, Phase: program.Behind, Default: program.Accept, Chain: behind(kind)})
	c.add(last, program.Rule{Stage: program.StageRules, Actions: []program.Action{c.count(passed(kind), program.Origin{}, "what passed the filter chains of "+string(kind))}})
}

// behind is the base chain that counts what passed the filter chains of others.
func behind(kind program.HookKind) string { return string(kind) + "_passed" }

// noted is the chain that a packet goes to which the candidate would not let pass.
func noted(kind program.HookKind) string { return "noted_" + string(kind) }

// Protocols with ports, whose numbers are IANA's.
var ported = []uint64{6, 17, 33, 132, 136} // TCP, UDP, DCCP, SCTP, UDP-Lite

// noting makes the chain that notes packets and accepts them: the far address, which
// is the source of what comes and the destination of what leaves, and the service.
// Each is a rule of its own, since a full set ends a rule.
func (c *counting) noting(kind program.HookKind) {
	far := program.Source
	if kind == program.Output {
		far = program.Destination
	}
	c.to.Sets = append(c.to.Sets,
		program.Set{ID: sources(kind), Key: []program.Field{far}, Life: program.Dynamic, Counters: true, Size: sourcesSize},
		program.Set{ID: services(kind), Key: []program.Field{program.Protocol, program.Port}, Life: program.Dynamic, Counters: true, Size: servicesSize},
		program.Set{ID: protocols(kind), Key: []program.Field{program.Protocol}, Life: program.Dynamic, Counters: true, Size: protocolsSize},
	)
	withPorts := program.Condition{Field: program.Protocol}
	for _, n := range ported {
		withPorts.Numbers = append(withPorts.Numbers, program.NumberRange{From: n, To: n})
	}
	without := withPorts
	without.Not = true
	at := c.chain(noted(kind), "what would be dropped at "+string(kind)+", noted and accepted")
	c.add(at,
		program.Rule{Actions: []program.Action{program.SetAdd{Set: sources(kind), Fields: []program.Field{far}}}},
		program.Rule{
			Match:   []program.Condition{withPorts},
			Actions: []program.Action{program.SetAdd{Set: services(kind), Fields: []program.Field{program.Protocol, program.Port}}},
		},
		program.Rule{
			Match:   []program.Condition{without},
			Actions: []program.Action{program.SetAdd{Set: protocols(kind), Fields: []program.Field{program.Protocol}}},
		},
		program.Rule{Actions: []program.Action{program.Accept}},
	)
}

// unjudged is the chain of packets that cannot be judged.
func (c *counting) unjudged(kind program.HookKind, why, text string) string {
	name := "unjudged_" + string(kind) + "_" + why
	if !c.made[name] {
		at := c.chain(name, text)
		if why == untrackedHere {
			c.add(at, program.Rule{Match: neverTracked(), Actions: []program.Action{program.Return}, Comment: "tracked by no kernel, whoever asks"})
		}
		c.add(at, program.Rule{Actions: []program.Action{
			c.line(Line{Counter: string(kind) + ".unjudged." + why, Hook: kind, Verdict: Unjudged, Text: text}), program.Accept,
		}})
	}
	return name
}

// notes says what is not as it would be.
func (c *counting) notes() {
	say := func(text string) {
		if !slices.Contains(c.legend.Notes, text) {
			c.legend.Notes = append(c.legend.Notes, text)
		}
	}
	for _, h := range c.from.Hooks {
		if h.Phase == program.NAT || h.Kind == program.Postrouting {
			say("the policy's address translation is not done: addresses are judged as the running firewall leaves them, and new flows that the policy would redirect are not judged")
		}
	}
	for _, o := range c.unlimited {
		say(fmt.Sprintf("%s:%d: the number of connections is assumed to be within its limit: counting them could drop a packet", o.File, o.Line))
	}
	if c.handshakes {
		say("limits per source count the packets that begin TCP connections; enforced, they count handshakes that are completed")
	}
	for i := range c.to.Chains {
		for _, r := range c.to.Chains[i].Rules {
			c.legend.Tracks = c.legend.Tracks || slices.ContainsFunc(r.Match, aboutTracking)
			for _, a := range r.Actions {
				if program.EffectOf(a).Bans != "" {
					say("what a limit would ban is counted as dropped while the ban would hold; since nothing is dropped, the source may send less or more than it otherwise would")
				}
			}
		}
	}
}
