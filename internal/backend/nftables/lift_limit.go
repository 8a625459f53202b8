package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// gate is a chain that is a limit by source, as lower_source.go says its shape:
// whatever differs from it is none, and is refused where its parts are read one by
// one.
type gate struct {
	action   program.Action // Limit or ConnectionLimit
	families []int
	through  []Statement // what packets do that it lets through
	resets   bool        // it is asked of TCP alone, by a condition that nft puts before a reset
}

// gate reads a chain as a limit by source; nil where it is none.
func (r *lifter) gate(name string) *gate {
	if g, known := r.gates[name]; known {
		return g
	}
	r.gates[name] = nil
	if c := r.tree.chain(name); c != nil && c.Base == nil {
		p := gateParser{lifter: r, rules: c.Rules}
		if g := p.parse(); g != nil {
			r.gates[name] = g
		}
	}
	return r.gates[name]
}

type gateParser struct {
	*lifter
	rules []Rule // that are left

	through  []Statement
	resets   bool
	families []int
	key      program.SourceKey
	table    string
	rate     Rate   // of a limit
	most     uint64 // of connections
	byRate   bool
	full     string // chain of those that found the table full
	counter  string
}

func (p *gateParser) parse() *gate {
	for len(p.rules) > 0 && p.own(p.rules[0].Statements) {
		p.rules = p.rules[1:]
	}
	if len(p.families) == 0 || len(p.through) == 0 {
		return nil
	}
	var full []int
	for len(p.rules) > 0 {
		f := p.found(p.rules[0].Statements, len(full) == 0)
		if f == 0 {
			break
		}
		full = append(full, f)
		p.rules = p.rules[1:]
	}
	if !slices.Equal(full, p.families) || !p.shared() {
		return nil
	}
	g := &gate{families: p.families, through: p.through, resets: p.resets}
	if !p.byRate {
		if len(p.rules) > 0 || p.most == 0 {
			return nil
		}
		g.action = program.ConnectionLimit{
			Name: perSourceName(p.table), Max: uint32(p.most), Per: p.key, Table: p.table, FullCounter: p.counter, //nolint:gosec // the kernel has 32 bits
		}
		return g
	}
	limit := program.Limit{Name: perSourceName(p.table), Rate: p.rate.program(), Per: p.key, Table: p.table, FullCounter: p.counter}
	if len(p.rules) > 0 && !p.bans(&limit) {
		return nil
	}
	g.action = limit
	return g
}

// sourceFamily is the family of a key that is the source or the destination, cut as the
// set has it, and which of them it is; 0 is none.
func sourceFamily(s Statement) (int, program.SourceKey) {
	ip, side, _ := strings.Cut(s.Field, " ")
	key := map[string]program.SourceKey{"saddr": program.PerSource, "daddr": program.PerDestination}[side]
	if family := map[string]int{"ip": 4, "ip6": 6}[ip]; family != 0 && key != program.Together && s.Mask == keyMask(dynamicID(s.Set), family) {
		return family, key
	}
	return 0, program.Together
}

// own reads "update @table { source limit rate … } THEN" of one family.
func (p *gateParser) own(statements []Statement) bool {
	statements, resets := withoutReset(statements)
	if len(statements) == 0 {
		return false
	}
	s := statements[0]
	f, key := sourceFamily(s)
	if s.Kind != SetAdd || len(s.Inner) != 1 || s.Number != 0 || f == 0 || slices.Contains(p.families, f) {
		return false
	}
	inner := s.Inner[0]
	byRate := s.Op == "update" && inner.Kind == RateLimit && inner.Name == "" && !inner.Over
	byCount := s.Op == "add" && inner.Kind == ConnLimit && !inner.Over
	if !byRate && !byCount {
		return false
	}
	table, err := p.sourceTable(s)
	first := len(p.families) == 0
	switch {
	case err != nil || len(statements) == 1:
		return false
	case first:
		p.key, p.table, p.byRate, p.rate, p.most, p.through, p.resets = key, table, byRate, inner.Rate, inner.Number, statements[1:], resets
	case key != p.key || resets != p.resets || table != p.table || byRate != p.byRate || inner.Rate != p.rate || inner.Number != p.most || !sameStatements(statements[1:], p.through):
		return false
	}
	p.families = append(p.families, f)
	return true
}

// withoutReset leaves out the condition on TCP that nft puts before a rule which
// ends in a reset, and says whether there was one.
func withoutReset(statements []Statement) ([]Statement, bool) {
	n := len(statements)
	if n > 2 && asksProtocol(statements[:1], "6") && statements[n-1].Kind == Reject && statements[n-1].Name == "tcp reset" {
		return statements[1:], true
	}
	return statements, false
}

// fits says whether all packets that come to a gate here are such as it is asked of.
func (w *ruleLifter) fits(g *gate) bool {
	tcp := program.Condition{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}}
	return !g.resets || w.holds([]program.Condition{tcp})
}

// found reads "source != @table counter full goto NAME_full" and gives its family.
func (p *gateParser) found(statements []Statement, first bool) int {
	n := len(statements)
	if n < 2 || n > 3 {
		return 0
	}
	s, last := statements[0], statements[n-1]
	f, key := sourceFamily(s)
	k := p.tree.set(s.Set)
	if s.Kind != Match || key != p.key || s.Op != "!=" || f == 0 || k == nil || p.ids[k.Name] != p.table || k.family() != f || last.Kind != Goto {
		return 0
	}
	counter := ""
	if n == 3 {
		if statements[1].Kind != Count || statements[1].Name == "" {
			return 0
		}
		counter = programName(bare(statements[1].Name))
	}
	if first {
		p.full, p.counter = last.Name, counter
	}
	if last.Name != p.full || counter != p.counter {
		return 0
	}
	return f
}

// shared reads the chain of the sources that found the table full: one bucket as
// large as that of one source.
func (p *gateParser) shared() bool {
	c := p.tree.chain(p.full)
	if c == nil || len(c.Rules) != 1 || len(c.Rules[0].Statements) < 2 {
		return false
	}
	statements, resets := withoutReset(c.Rules[0].Statements)
	s, rest := statements[0], statements[1:]
	switch {
	case resets != p.resets, s.Over || !sameStatements(rest, p.through):
		return false
	case !p.byRate:
		return s.Kind == ConnLimit && s.Number == p.most
	case s.Kind != RateLimit || s.Name == "":
		return false
	}
	rate, there := p.tree.rateOf(s.Name)
	return there && rate == p.rate
}

// rateOf is the rate of a limit object.
func (t *Tree) rateOf(name string) (Rate, bool) {
	for _, x := range t.Limits {
		if x.Name == name {
			return x.Rate, true
		}
	}
	return Rate{}, false
}

// bans reads what happens to a source over its limit: who is never banned goes on,
// the others are put into a set and dropped.
func (p *gateParser) bans(limit *program.Limit) bool {
	var spared addrset.Set
	n := len(p.rules)
	last := p.rules[n-1].Statements
	if n < 1+len(p.families) || len(last) != 1 {
		return false
	}
	switch {
	case last[0].Kind == Goto:
		limit.Over = p.lead(last[0].Name)
	case last[0].Kind != Verdict || last[0].Name != "drop":
		return false
	}
	adds := p.rules[n-1-len(p.families) : n-1]
	for i, k := range adds {
		if len(k.Statements) != 1 {
			return false
		}
		s := k.Statements[0]
		id, err := p.sourceTable(s)
		if err != nil || s.Kind != SetAdd || s.Op != "add" || len(s.Inner) > 0 || s.Number == 0 {
			return false
		}
		if f, key := sourceFamily(s); f != p.families[i] || key != p.key {
			return false
		}
		if i > 0 && (limit.Ban != id || limit.BanTimeout != s.Number*1000) {
			return false
		}
		limit.Ban, limit.BanTimeout = id, s.Number*1000
	}
	for _, k := range p.rules[:n-1-len(p.families)] {
		if len(k.Statements) != 2 || k.Statements[1].Kind != Verdict || k.Statements[1].Name != "return" {
			return false
		}
		some, ok := p.sources(k.Statements[0])
		if !ok {
			return false
		}
		spared = spared.Union(some)
	}
	if !spared.IsEmpty() {
		limit.NeverBan = neverBanned(p.out, spared)
	}
	return true
}

// sources are the addresses that a condition on the gate's key allows.
func (p *gateParser) sources(s Statement) (addrset.Set, bool) {
	var out addrset.Set
	side := " " + map[program.SourceKey]string{program.PerSource: "saddr", program.PerDestination: "daddr"}[p.key]
	if s.Kind != Match || s.Op != "==" || s.Mask != "" || s.Field != "ip"+side && s.Field != "ip6"+side {
		return out, false
	}
	if s.Set != "" {
		k := p.tree.set(s.Set)
		if k == nil || k.Life == program.Dynamic || k.Elements.Unknown || k.Asks || len(k.Types) != 1 || k.Types[0] != addressType(k.family()) || len(k.Elements.Tuples) > 0 {
			return out, false
		}
		return k.Elements.all(), true
	}
	for _, v := range s.Values {
		a, err := addrset.ParseRange(v)
		if err != nil {
			return out, false
		}
		out = out.Union(addrset.Of(a))
	}
	return out, true
}

func sameStatements(a, b []Statement) bool {
	return slices.EqualFunc(a, b, func(x, y Statement) bool { return x.text() == y.text() })
}

// throughGate lifts a rule that leads to a limit by source.
func (w *ruleLifter) throughGate(g *gate) ([]program.Rule, error) {
	if len(g.families) == 1 {
		needed := familyCondition(g.families[0])
		if !w.holds(needed) {
			if len(w.actions) > 0 {
				return nil, fmt.Errorf("it limits sources of one family after an action")
			}
			if err := w.and(needed...); err != nil {
				return nil, err
			}
		}
	}
	w.act(g.action)
	if len(g.through) == 1 && g.through[0].Kind == Goto && !w.lifter.tree.alwaysDecides(g.through[0].Name) {
		// The chain of the limit was jumped to: what comes back goes on behind it.
		w.act(program.Jump{Chain: w.lead(g.through[0].Name)})
		return []program.Rule{w.made()}, nil
	}
	return w.rule(g.through)
}

// goneToGate lifts a rule that goes to a limit by source: what that does not let
// through, or sends back, leaves the rule's own chain.
func (w *ruleLifter) goneToGate(g *gate) ([]program.Rule, error) {
	if len(w.actions) > 0 || w.inner || w.counts {
		return nil, errReturn
	}
	back := *w
	back.match = slices.Clone(w.match)
	back.actions = []program.Action{program.Return}
	rules, err := w.throughGate(g)
	return append(rules, back.made()), err
}

// limit lifts a limit that is in a rule: by name it is shared.
func (w *ruleLifter) limit(s Statement) error {
	if s.Over {
		return errUnknown
	}
	if s.Name == "" {
		w.act(program.Limit{Name: "limit of " + w.label(), Rate: s.Rate.program()})
		return nil
	}
	rate, there := w.lifter.tree.rateOf(s.Name)
	if !there {
		return fmt.Errorf("there is no limit %s", s.Name)
	}
	name, _ := cutHash(s.Name, 8)
	w.act(program.Limit{Name: programName(name), Rate: rate.program()})
	return nil
}

// perSourceName names a limit by source after its table.
func perSourceName(table string) string { return "per source in " + table }

// connectionsName names a limit of all connections, which the kernel has no name
// for, after the rule that it is in.
func connectionsName(most uint64, rule string) string {
	return fmt.Sprintf("%d connections of %s", most, rule)
}

// neverBanned keeps a set of what a limit never bans, named after what is in it.
func neverBanned(p *program.Program, s addrset.Set) string {
	h := sha256.New()
	_ = s.WriteRanges(h)
	id := "never banned " + hex.EncodeToString(h.Sum(nil)[:8])
	if p.Set(id) == nil {
		p.Sets = append(p.Sets, program.Set{ID: id, Key: []program.Field{program.Source}, Life: program.Static, Addresses: s})
	}
	return id
}

// program is a rate in a program's words.
func (r Rate) program() program.Rate {
	for _, u := range units {
		if strings.EqualFold(u.name, r.Unit) {
			return program.Rate{Packets: r.Packets, Per: u.ms, Burst: r.Burst}
		}
	}
	return program.Rate{Packets: r.Packets, Burst: r.Burst}
}

// family is that of a set with one address as key.
func (s *Set) family() int {
	if slices.ContainsFunc(s.Types, func(t string) bool { return strings.HasPrefix(t, addressType(6)) }) {
		return 6
	}
	return 4
}
