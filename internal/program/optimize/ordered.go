package optimize

import "sluice/internal/program"

// ordered answers whether rules of one chain commute, by their places, without
// reading them again each time. It is good until the chain is changed.
type ordered struct {
	*facts
	rules   []program.Rule
	scopes  []*scope
	effects []*effect
}

func (f *facts) ordered(chain *program.Chain) *ordered {
	n := len(chain.Rules)
	return &ordered{facts: f, rules: chain.Rules, scopes: make([]*scope, n), effects: make([]*effect, n)}
}

func (o *ordered) effectAt(i int) effect {
	if o.effects[i] == nil {
		e := o.effect(&o.rules[i])
		o.effects[i] = &e
	}
	return *o.effects[i]
}

func (o *ordered) scopeAt(i int) *scope {
	if o.scopes[i] == nil {
		o.scopes[i] = o.scope(&o.rules[i])
	}
	return o.scopes[i]
}

// commuteAt says that the rules at two places may change them.
func (o *ordered) commuteAt(i, j int) bool {
	*o.compared++
	x, y := o.effectAt(i), o.effectAt(j)
	if !x.independent(y) {
		return false
	}
	return sameInAnyOrder(&o.rules[i], &o.rules[j], x, y) || o.scopeAt(i).disjoint(o.scopeAt(j))
}
