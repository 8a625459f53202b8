package optimize

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// worthPassing is from how many rules on a way past them is worth its own rule.
const worthPassing = 3

// mostTwice bounds how many rules of a chain that is parted are in both parts.
const mostTwice = 16

// othersAside parts what a base chain does behind established flows by whether packets
// are TCP, and the chain of rules that it ends in too: neither then meets rules that
// are not about it. TCP, which most flows are, stays. It gives the name of the chain
// that the others go to; "" where that would save too little.
func othersAside(p *program.Program, base string) string {
	chain := p.Chain(base)
	at, end := 0, len(chain.Rules)-1
	for i := range chain.Rules {
		if isFlow(chain.Rules[i]) {
			at = i + 1
		}
	}
	if at == 0 || end < at || len(chain.Rules[end].Match) > 0 || len(chain.Rules[end].Actions) != 1 {
		return ""
	}
	rules := p.Chain(program.EffectOf(chain.Rules[end].Actions[0]).Goes)
	if rules == nil {
		return ""
	}
	head := newParting(p)
	for i := range chain.Rules[:at] {
		head.passed(&chain.Rules[i])
	}
	if head.part(chain.Rules[at:end]) < end-at {
		return ""
	}
	rest := newParting(p)
	rest.before = slices.Clip(head.before)
	whole := !rest.leadsApart(p, rules.Name, &chain.Rules[end])
	from := 0 // what follows is about both
	if !whole {
		from = rest.part(rules.Rules)
	}
	if head.past+rest.past < worthPassing {
		return ""
	}

	last := chain.Rules[end]
	others := program.Chain{Name: freeChain(p, base+"_others"), Comment: "what " + base + " does beside TCP", Rules: append(head.others, last)}
	made := []program.Chain{others}
	if !whole {
		mine := program.Chain{Name: freeChain(p, rules.Name+"_tcp"), Comment: rules.Comment + ": those about TCP"}
		if from < len(rules.Rules) {
			both := program.Chain{Name: freeChain(p, rules.Name+"_all"), Comment: "the rest of " + rules.Name, Rules: rules.Rules[from:]}
			goesOn := program.Rule{Actions: []program.Action{program.Goto{Chain: both.Name}}}
			rest.tcp, rest.others = append(rest.tcp, goesOn), append(rest.others, goesOn)
			made = append(made, both)
		}
		mine.Rules, rules.Rules = rest.tcp, rest.others
		made = append(made, mine)
		rest.retarget(p, rules.Name, mine.Name)
		last.Actions = []program.Action{program.Goto{Chain: mine.Name}}
	}
	aside := program.Rule{
		Stage: program.StageAside, Match: slices.Clone(onlyTCP.Match), Comment: "all but TCP",
		Actions: []program.Action{program.Goto{Chain: others.Name}},
	}
	aside.Match[0].Not = true
	chain.Rules = slices.Concat(chain.Rules[:at], []program.Rule{aside}, head.tcp, []program.Rule{last})
	p.Chains = append(p.Chains, made...)
	return others.Name
}

var onlyTCP = program.Rule{Match: []program.Condition{
	{Field: program.Protocol, Numbers: []program.NumberRange{{From: packet.TCP, To: packet.TCP}}},
}}

// parting is rules on their way apart.
type parting struct {
	*facts
	tcp, others []program.Rule
	past        int      // rules that are not in both: each costs only those that it is about
	twice       int      // rules that are in both
	before      []*scope // of rules that leave no TCP packet behind
}

func newParting(p *program.Program) *parting {
	s := &parting{facts: newFacts(p)}
	s.given = &onlyTCP
	return s
}

// part takes rules apart, up to the first one that there may be only one of, or that
// would be one too many. It gives that one's place.
func (s *parting) part(rules []program.Rule) int {
	for i := range rules {
		r := &rules[i]
		meets, others := !s.disjoint(&onlyTCP, r), !s.covers(&onlyTCP, r)
		mine := s.without(s.within(*r, &onlyTCP))
		if mine.Stage = r.Stage; len(mine.Match) < len(r.Match) {
			mine.Stage = program.StageAside // only behind the others is it right
		}
		meets = meets && !s.hidden(&mine)
		switch {
		case !meets || !others:
			s.past++
		case s.twice == mostTwice || bounds(r):
			return i
		default:
			s.twice++
		}
		if others {
			s.others = append(s.others, *r)
		}
		if meets {
			s.tcp = append(s.tcp, mine)
			s.passed(&mine)
		}
	}
	return len(rules)
}

// passed notes a rule that TCP has come past.
func (s *parting) passed(r *program.Rule) {
	if s.terminal(r) {
		s.before = append(s.before, s.ofTCP(r))
	}
}

// ofTCP is the scope of a rule for TCP packets.
func (s *parting) ofTCP(r *program.Rule) *scope {
	return s.scope(&program.Rule{Match: slices.Concat(onlyTCP.Match, r.Match)})
}

// hidden says that no TCP packet comes to a rule.
func (s *parting) hidden(r *program.Rule) bool {
	mine := s.ofTCP(r)
	return slices.ContainsFunc(s.before, func(b *scope) bool { return b.covers(mine) })
}

// without takes out conditions on ports that all packets meet which come to a rule.
func (s *parting) without(r program.Rule) program.Rule {
	for i, c := range r.Match {
		if c.Field != program.Port && c.Field != program.SourcePort {
			continue
		}
		c.Not = !c.Not
		turned := r
		turned.Match = slices.Clone(r.Match)
		turned.Match[i] = c
		if s.hidden(&turned) {
			r.Match = slices.Delete(slices.Clone(r.Match), i, i+1)
			return s.without(r)
		}
	}
	return r
}

// leadsApart says that of all that leads to a chain, beside one rule, each is about
// TCP alone or about no TCP.
func (s *parting) leadsApart(p *program.Program, name string, beside *program.Rule) bool {
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			for _, a := range r.Actions {
				e := program.EffectOf(a)
				leads := e.Calls == name || e.Goes == name
				switch {
				case r == beside || !slices.Contains(p.Leads(a), name):
				case !leads || !e.Verdict || !s.disjoint(&onlyTCP, r) && !s.covers(&onlyTCP, r):
					return false
				}
			}
		}
	}
	return true
}

// retarget leads TCP that is led to one chain to another.
func (s *parting) retarget(p *program.Program, from, to string) {
	for i := range p.Chains {
		for j := range p.Chains[i].Rules {
			r := &p.Chains[i].Rules[j]
			if s.disjoint(&onlyTCP, r) || !s.covers(&onlyTCP, r) {
				continue
			}
			for k, a := range r.Actions {
				switch a {
				case program.Action(program.Jump{Chain: from}):
					r.Actions[k] = program.Jump{Chain: to}
				case program.Action(program.Goto{Chain: from}):
					r.Actions[k] = program.Goto{Chain: to}
				}
			}
		}
	}
}

// untrackedAside gives TCP that bypasses tracking, where the policy has such, a
// chain with what is left for it to meet behind established TCP. It is the traffic
// that such a host has most of, and in output, where nothing is told of it by state,
// its answers would come past all that is. It gives the name of the chain; "" where it
// would save too little.
func untrackedAside(p *program.Program, base string) string {
	chain := p.Chain(base)
	first := 1 + slices.IndexFunc(chain.Rules, func(r program.Rule) bool { return isFlow(r) && asksProtocol(&r, packet.TCP) })
	if first == 0 || !bypasses(p) {
		return ""
	}
	f := newFacts(p)
	aside := program.Rule{Stage: program.StageAside, Comment: "TCP that bypasses tracking", Match: slices.Concat(onlyTCP.Match, []program.Condition{
		{Field: program.State, Names: []string{"untracked"}},
	})}
	var rest []program.Rule
	past, closed := 0, false
	for _, r := range chain.Rules[first:] {
		if f.disjoint(&onlyTCP, &r) {
			continue
		}
		if f.disjoint(&aside, &r) {
			past++
			continue
		}
		if bounds(&r) {
			return "" // what it bounds is all packets together
		}
		rest = append(rest, f.within(r, &aside))
		if len(rest[len(rest)-1].Match) < len(r.Match) {
			past++
		}
		if last := &rest[len(rest)-1]; len(last.Match) == 0 && f.terminal(last) {
			closed = true
			break
		}
	}
	if past < worthPassing || !closed {
		return ""
	}
	name := freeChain(p, base+"_untracked")
	aside.Actions = []program.Action{program.Goto{Chain: name}}
	chain.Rules = slices.Insert(slices.Clone(chain.Rules), first, aside)
	p.Chains = append(p.Chains, program.Chain{Name: name, Comment: "what " + base + " does with TCP that bypasses tracking", Rules: rest})
	return name
}

// joinLast puts the rules of the chain that a base chain ends in into its place, where
// nothing else leads there.
func joinLast(p *program.Program, name string) {
	chain := p.Chain(name)
	end := len(chain.Rules) - 1
	to := program.EffectOf(chain.Rules[end].Actions[0]).Goes
	ways := 0
	for i := range p.Chains {
		for _, r := range p.Chains[i].Rules {
			for _, a := range r.Actions {
				if slices.Contains(p.Leads(a), to) {
					ways++
				}
			}
		}
	}
	if ways > 1 {
		return
	}
	chain.Rules = chain.Rules[:end:end]
	for _, r := range p.Chain(to).Rules {
		r.Stage = program.StageRules
		chain.Rules = append(chain.Rules, r)
	}
	p.Chains = slices.DeleteFunc(p.Chains, func(c program.Chain) bool { return c.Name == to })
}

func asksProtocol(r *program.Rule, protocol uint64) bool {
	return slices.ContainsFunc(r.Match, func(c program.Condition) bool {
		return c.Field == program.Protocol && !c.Not && slices.Equal(c.Numbers, []program.NumberRange{{From: protocol, To: protocol}})
	})
}

// bypasses says that the policy keeps more out of tracking than loopback.
func bypasses(p *program.Program) bool {
	for i := range p.Chains {
		for _, r := range p.Chains[i].Rules {
			if r.Stage == program.StageTrack && r.Untracks() {
				return true
			}
		}
	}
	return false
}

// within gives a rule for packets of which another one has been asked: what that
// has told is not asked again. A protocol is, where more of its header is, or where
// it says how to answer.
func (f *facts) within(r program.Rule, asked *program.Rule) program.Rule {
	r.Stage = ""
	told := func(c program.Condition) bool { return f.covers(&program.Rule{Match: []program.Condition{c}}, asked) }
	r.Match = slices.DeleteFunc(slices.Clone(r.Match), func(c program.Condition) bool { return c.Field == program.State && told(c) })
	more := slices.ContainsFunc(r.Match, func(c program.Condition) bool { return c.Field != program.Protocol }) ||
		slices.ContainsFunc(r.Actions, func(a program.Action) bool {
			e := program.EffectOf(a)
			return e.Map != "" || e.Decides == program.Reject
		})
	if !more {
		r.Match = slices.DeleteFunc(r.Match, told)
	}
	return r
}
