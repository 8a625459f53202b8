package compile

import (
	"sluice/internal/base/english"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
)

// Owner is whose tables a compiled program becomes.
const Owner = "sluice"

// Compile records what the policy means. The policy has been checked: what
// is wrong with it is found by policy, resolve and check, and Compile gives an
// error only for what no backend could say.
func Compile(r *resolve.Resolved) (*program.Program, error) {
	c := &compiler{
		Resolved: r,
		policy:   r.Policy,
		program: &program.Program{
			Owner: Owner, Scope: r.Facts.Namespace,
			Grace:  uint64(r.Policy.Tracking.GraceTime().Milliseconds()),                               //nolint:gosec // never negative
			Layout: program.Layout{Memory: r.Policy.Layout.Memory, Load: uint64(r.Policy.Layout.Load)}, //nolint:gosec // never negative

			Uncounted: r.Policy.Uncounted,
		},
		sets:     map[string]bool{},
		counters: map[string]bool{},
		ids:      map[string]int{},
		ruleIDs:  map[*policy.Rule]string{},

		labels:     map[string]uint8{},
		handshakes: map[policy.Hook][]*proven{},
	}
	for _, s := range []*policy.Section{r.Policy.Input, r.Policy.Forward, r.Policy.Output} {
		c.nameRules(s)
	}
	for _, s := range []*policy.Section{r.Policy.Input, r.Policy.Forward, r.Policy.Output} {
		c.section(s)
	}
	c.ownAnswers()
	c.held()
	c.bans()
	c.tracking()
	c.nat()
	c.sysctls()
	c.lists()
	if err := c.program.Check(); err != nil {
		return nil, err
	}
	return c.program, nil
}

type compiler struct {
	*resolve.Resolved
	policy   *policy.Policy
	program  *program.Program
	sets     map[string]bool // made, by id
	counters map[string]bool
	ids      map[string]int // rule ids given, with how often
	ruleIDs  map[*policy.Rule]string
	natIDs   map[*policy.NAT]string

	labels     map[string]uint8 // of rules whose limits count handshakes, by id
	handshakes map[policy.Hook][]*proven
}

// base gives the base chain of a hook and phase and makes it where it is not
// there yet.
func (c *compiler) base(kind program.HookKind, phase program.Phase, name, comment string) *program.Chain {
	if chain := c.program.Base(kind, phase); chain != nil {
		return chain
	}
	c.program.Hooks = append(c.program.Hooks, program.Hook{Kind: kind, Phase: phase, Default: program.Accept, Chain: name})
	return c.chain(name, comment)
}

// chain makes a chain. The pointer holds until the next one is made.
func (c *compiler) chain(name, comment string) *program.Chain {
	c.program.Chains = append(c.program.Chains, program.Chain{Name: name, Comment: comment})
	return &c.program.Chains[len(c.program.Chains)-1]
}

// append puts rules at the end of a chain by name.
func (c *compiler) append(chain string, rules ...program.Rule) {
	to := c.program.Chain(chain)
	to.Rules = append(to.Rules, rules...)
}

func (c *compiler) note(o program.Origin, text string) {
	c.program.Notes = append(c.program.Notes, program.Note{Origin: o, Text: text})
}

// lists says when the lists that are downloaded are looked at.
func (c *compiler) lists() {
	for _, s := range c.policy.Sets {
		if s.URL == nil {
			continue
		}
		when := "a copy of any age is used, until " + program.RefreshCommand + " " + s.Name + " asks for another"
		if s.Refresh > 0 {
			when = "where the copy is older than " + english.Duration(s.Refresh) + ", plan and apply download it, and so does a timer that runs " + program.RefreshCommand
		}
		c.note(originOf(s.Pos, "set "+s.Name), "set "+s.Name+": "+when)
	}
}

func originOf(pos policy.Pos, text string) program.Origin {
	return program.Origin{File: pos.File, Line: pos.Line, Column: pos.Column, Text: text}
}

// counter declares a counter once.
func (c *compiler) counter(name string, o program.Origin, comment string) {
	if !c.counters[name] {
		c.counters[name] = true
		c.program.Counters = append(c.program.Counters, program.Counter{Name: name, Origin: o, Comment: comment})
	}
}

// counted gives the actions that follow a counter of a line, behind it where the
// policy has lines counted.
func (c *compiler) counted(name string, o program.Origin, comment string, then ...program.Action) []program.Action {
	if c.policy.Uncounted {
		return then
	}
	c.counter(name, o, comment)
	return append([]program.Action{program.Count{Counter: name}}, then...)
}
