package nftables

import (
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// Expected says a program in the words in which it can be read back: what the kernel
// counts otherwise, what it has no name for, and what it lacks are brought to one
// form on both sides of a proof. No condition and no verdict of it is touched.
func (n nftables) Expected(p *program.Program, can backend.Capabilities, have backend.State, store backend.BanStore) (*program.Program, error) {
	s, err := stateOf(have)
	if err != nil {
		return nil, err
	}
	l := &lowering{program: p, can: can, tree: &Tree{}}
	l.capabilities()
	if len(l.refusals) > 0 {
		return nil, &backend.RefusedError{Backend: Name, Refusals: l.refusals}
	}
	m := meaning{l: l, out: *l.program}
	m.out.Owner = programName(name(p.Owner))
	m.sets(s, askedOf(store))
	m.route = s.Tree.comparedRoute()
	m.out.Counters = slices.Clone(m.out.Counters)
	for i := range m.out.Counters {
		m.out.Counters[i].Name = again(m.out.Counters[i].Name)
	}
	if !l.offloads {
		m.out.Flowtables = nil
	}
	m.out.Chains = make([]program.Chain, 0, len(l.program.Chains))
	for _, c := range l.program.Chains {
		rules := make([]program.Rule, 0, len(c.Rules))
		for _, r := range c.Rules {
			if r = m.rule(r); len(r.Actions) > 0 {
				rules = append(rules, r)
			}
		}
		c.Rules = rules
		m.out.Chains = append(m.out.Chains, c)
	}
	return &m.out, nil
}

// again is a name as it is read back.
func again(id string) string { return programName(name(id)) }

type meaning struct {
	l   *lowering
	out program.Program
	ids map[string]string // of sets whose names are read back otherwise
	// route is the interface that rules name for those of default routes; "" where they
	// ask the set.
	route string
}

// sets applies what commands banned, and the names of the sets that packets fill.
func (m *meaning) sets(have *State, asked askedSets) {
	m.ids = map[string]string{}
	m.out.Sets = slices.Clone(m.out.Sets)
	for i := range m.out.Sets {
		s := &m.out.Sets[i]
		s.Elements = slices.Clone(s.Elements)
		for j := range s.Elements {
			if s.Elements[j].Counter != "" {
				s.Elements[j].Counter = again(s.Elements[j].Counter)
			}
		}
		switch {
		case s.Expires:
			s.Addresses, s.Ends = heldNow(s, &have.Tree, time.Now()), nil
		case s.Commands:
			s.Life, s.Commands = program.Static, false
			for _, k := range have.Tree.Sets {
				if k.byCommand() && asked.asks(k.readCommandSet()) {
					s.Addresses = s.Addresses.Union(k.Elements.all())
				}
			}
		case s.Life == program.Dynamic:
			s.Timeout = wholeSeconds(s.Timeout)
			if id := programName(stem(s.ID)); id != s.ID {
				m.ids[s.ID], s.ID = id, id
			}
		}
	}
}

// readCommandSet is commandSet of a set that was read, which has its side in its
// name alone.
func (s *Set) readCommandSet() commandSet {
	own := *s
	base, _ := cutHash(s.Name, 8)
	for _, at := range []side{sideA, sideB} {
		if s.Interval && strings.HasSuffix(base, "_"+string(at)) {
			own.Side = at
		}
	}
	return own.commandSet()
}

func (m *meaning) id(set string) string {
	if id, is := m.ids[set]; is {
		return id
	}
	return set
}

func (m *meaning) rule(r program.Rule) program.Rule {
	r.Match = slices.Clone(r.Match)
	for i := range r.Match {
		c := &r.Match[i]
		c.Set = m.id(c.Set)
		if at := slices.Index(c.Names, program.DefaultRoute); at >= 0 && m.route != "" {
			c.Names = slices.Clone(c.Names)
			c.Names[at] = m.route
		}
	}
	r.Match = append(r.Match, askedBy(r.Actions)...)
	label := comment(origin(r.Origin, r.Comment))
	actions := make([]program.Action, 0, len(r.Actions))
	for _, a := range r.Actions {
		if m.l.offloads || program.EffectOf(a).Flowtable == "" {
			actions = append(actions, m.action(a, label))
		}
	}
	r.Actions = actions
	return r
}

// askedBy is what a packet has to be for actions to rewrite it.
func askedBy(list []program.Action) []program.Condition {
	var out []program.Condition
	for _, a := range list {
		e := program.EffectOf(a)
		if f := e.Rewrites.Family(); f != 0 {
			out = familyCondition(f)
			if e.Ends && e.Rewrites.From.IsValid() {
				out = append(out, addressCondition(e.Rewrites.Field, addrset.FromPrefixes(e.Rewrites.From), false))
			}
		}
	}
	return out
}

func (m *meaning) action(a program.Action, label string) program.Action {
	switch a := a.(type) {
	case program.Count:
		return program.Count{Counter: again(a.Counter)}
	case program.Log:
		if a.Group != 0 {
			return a
		}
		a.Prefix = withoutOwner(m.out.Owner, m.l.prefix(a.Prefix))
		if a.Rate.Packets > 0 {
			a.Rate = inUnits(a.Rate)
		}
		return a
	case program.Limit:
		return m.limit(a)
	case program.ConnectionLimit:
		if a.Per != program.Together {
			a.Table = m.id(a.Table)
			a.Name, a.FullCounter = perSourceName(a.Table), againOrNone(a.FullCounter)
		} else {
			a.Name = connectionsName(uint64(a.Max), label)
		}
		return a
	case program.SetAdd:
		a.Set, a.Timeout = m.id(a.Set), wholeSeconds(a.Timeout)
		return a
	case program.SetMark:
		return program.EffectOf(a).Marks
	case program.VerdictMap:
		a.Set = m.id(a.Set)
		return a
	case program.DNATPrefix:
		if a.From.IsSingleIP() {
			return program.DNAT{To: a.To.Addr()}
		}
		return program.DNATPrefix{From: a.From.Masked(), To: a.To.Masked()}
	case program.SNATPrefix:
		if a.From.IsSingleIP() {
			return program.SNAT{To: a.To.Addr()}
		}
		return program.SNATPrefix{From: a.From.Masked(), To: a.To.Masked()}
	case program.MapSource:
		return program.MapSource{From: a.From.Masked(), To: a.To.Masked()}
	case program.MapDestination:
		return program.MapDestination{From: a.From.Masked(), To: a.To.Masked()}
	}
	return a
}

func (m *meaning) limit(a program.Limit) program.Action {
	a.Rate = inUnits(a.Rate)
	if a.Per == program.Together {
		a.Name = programName(stem(a.Name))
		return a
	}
	a.Table = m.id(a.Table)
	a.Name, a.FullCounter = perSourceName(a.Table), againOrNone(a.FullCounter)
	if a.Ban == "" {
		return a
	}
	a.Ban, a.BanTimeout = m.id(a.Ban), wholeSeconds(a.BanTimeout)
	if s := m.out.Set(a.NeverBan); s != nil {
		var spared addrset.Set
		if spared = allAddresses(s); !spared.IsEmpty() {
			a.NeverBan = neverBanned(&m.out, spared)
		} else {
			a.NeverBan = ""
		}
	}
	return a
}

func againOrNone(counter string) string {
	if counter == "" {
		return ""
	}
	return again(counter)
}

// inUnits is a rate as the kernel counts it.
func inUnits(r program.Rate) program.Rate {
	out, _ := unitRate(r)
	return out.program()
}

// wholeSeconds: nft writes the time-outs of elements in seconds.
func wholeSeconds(ms uint64) uint64 { return (ms + 999) / 1000 * 1000 }

var _ backend.Lifter = nftables{}
