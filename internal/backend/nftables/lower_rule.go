package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/program"
)

// block is what a rule does, as rules without a match: in order, a packet goes
// on with the next one where a gate closed or nothing decided.
type block [][]Statement

func (l *lowering) rules() {
	for i := range l.program.Chains {
		c := &l.program.Chains[i]
		to := l.tree.chain(name(c.Name))
		for j := range c.Rules {
			rules, err := l.rule(c, &c.Rules[j])
			if err != nil {
				l.refuse(c.Rules[j].Origin, "", "chain %s, rule %d: %s", c.Name, j+1, err)
				continue
			}
			to.Rules = append(to.Rules, rules...)
		}
	}
}

// rule gives the rules of the tree for one rule of the program.
func (l *lowering) rule(c *program.Chain, r *program.Rule) ([]Rule, error) {
	actions := l.supported(r.Actions)
	if len(actions) == 0 {
		return nil, nil
	}
	families, apart := l.familiesOf(r)
	if !apart {
		return l.variant(c, r, actions, 0, families)
	}
	var out []Rule
	for _, f := range families {
		rules, err := l.variant(c, r, actions, f, families)
		if err != nil {
			return nil, err
		}
		out = append(out, rules...)
	}
	return out, nil
}

// supported leaves out what the pass over capabilities decided against.
func (l *lowering) supported(actions []program.Action) []program.Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a program.Action) bool {
		return !l.offloads && program.EffectOf(a).Flowtable != ""
	})
}

// variant lowers a rule for one family, or for both together (0).
func (l *lowering) variant(c *program.Chain, r *program.Rule, actions []program.Action, family int, families []int) ([]Rule, error) {
	matches, err := l.match(r, family)
	if err != nil {
		return nil, err
	}
	if len(matches) == 0 {
		return nil, nil
	}
	m := &matcher{l: l, rule: r, family: family}
	if err := m.findProtocols(); err != nil {
		return nil, err
	}
	a := &actor{l: l, chain: c, rule: r, family: family, families: families, protocols: m.protocols}
	body, err := a.block(actions)
	if err != nil {
		return nil, err
	}
	if len(body) == 1 && len(body[0]) == 0 {
		return nil, nil // a verdict map has nothing of the family
	}
	comment := origin(r.Origin, r.Comment)
	finish := func(statements []Statement) Rule {
		return Rule{Statements: familyListed(familyOnce(statements, family), family), Comment: comment, Origin: r.Origin}
	}
	switch {
	case len(matches) == 1 && len(matches[0]) == 0:
		var out []Rule
		for _, statements := range body {
			out = append(out, finish(statements))
		}
		return out, nil
	case len(body) != 1 || a.once && (len(matches) > 1 || family != 0):
		to, err := a.enter(body, a.key("then"), comment)
		if err != nil {
			return nil, err
		}
		body = block{{to}}
	}
	matches, whole, err := a.dispatch(m, matches, body)
	if err != nil {
		return nil, err
	}
	var out []Rule
	for i, way := range matches {
		if !whole[i] {
			way = slices.Concat(way, body[0])
		}
		out = append(out, finish(way))
	}
	return out, nil
}

// actor lowers the actions of one rule.
type actor struct {
	l         *lowering
	chain     *program.Chain
	rule      *program.Rule
	family    int   // 4, 6; 0 is both
	families  []int // that the rule can match
	protocols []program.NumberRange
	once      bool // something in it bounds all ways of the rule together
}

// key names a chain of this rule's own.
func (a *actor) key(what string) string {
	if a.rule.ID != "" {
		return a.rule.ID + "_" + what
	}
	if a.rule.Origin.Line > 0 {
		return fmt.Sprintf("%s_line%d_%s", a.chain.Name, a.rule.Origin.Line, what)
	}
	return a.chain.Name + "_" + what
}

// enter gives the statement that leads into a chain with the block. Blocks of
// one key and contents share a chain. It is a goto where the block never
// comes back, and where it is to return for the chain that it is part of.
func (a *actor) enter(b block, key, comment string) (Statement, error) {
	kind := Jump
	switch {
	case b.decides():
		kind = Goto
	case b.returns():
		return Statement{}, fmt.Errorf("a return after a gate")
	}
	return Statement{Kind: kind, Name: a.l.chainOf(b, key, comment, a.rule.Origin)}, nil
}

func (l *lowering) chainOf(b block, key, comment string, o program.Origin) string {
	rules := make([]Rule, len(b))
	var contents strings.Builder
	contents.WriteString(key)
	for i, statements := range b {
		rules[i] = Rule{Statements: statements, Comment: comment, Origin: o}
		contents.WriteString("\n" + rules[i].text())
	}
	rules = slices.DeleteFunc(rules, func(r Rule) bool { return len(r.Statements) == 0 })
	if c := l.made[contents.String()]; c != nil {
		return c.Name
	}
	c := &Chain{Name: l.freeName(name(key)), Comment: comment, Rules: rules}
	l.made[contents.String()] = c
	l.tree.Chains = append(l.tree.Chains, c)
	return c.Name
}

func (l *lowering) freeName(wanted string) string {
	for n, try := 2, wanted; ; n++ {
		if l.tree.chain(try) == nil {
			return try
		}
		try = fmt.Sprintf("%s_%d", wanted, n)
	}
}

// decides says whether every packet that enters leaves by a verdict. A return
// counts: behind a goto it does what it would have done in the rule.
func (b block) decides() bool {
	if len(b) == 0 {
		return false
	}
	last := b[len(b)-1]
	if len(last) == 0 || !last[len(last)-1].ends() {
		return false
	}
	return !slices.ContainsFunc(last, Statement.gates)
}

func (b block) returns() bool {
	for _, statements := range b {
		for _, s := range statements {
			if s.Kind == Verdict && s.Name == "return" {
				return true
			}
		}
	}
	return false
}

// plain says whether the block can be in a rule: one line that ends in a
// verdict and has no gate.
func (b block) plain() bool { return len(b) == 1 && b.decides() }
