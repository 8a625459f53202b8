package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/program"
)

// laidOut is the kind of a condition on a set that is laid out in chains, while
// the rule is made: Name is the set of the program, Field what of the packet is
// looked at, Op as of Match. No tree has one.
const laidOut Kind = "laid out"

// laid is a set of one family that is laid out in chains.
type laid struct {
	set    *program.Set
	family int
	asking *asking
	sets   map[any]*Set         // in the kernel, by what they hold
	chains map[string]Statement // what leads to the chains of one use, by what the use is
}

func newLaid(s *program.Set, family int, k *asking) *laid {
	return &laid{set: s, family: family, asking: k, sets: map[any]*Set{}, chains: map[string]Statement{}}
}

// networkOffset is where an address is in the network header, in bits.
var networkOffset = map[int]map[program.Field]int{
	4: {program.Source: 96, program.Destination: 128},
	6: {program.Source: 64, program.Destination: 192},
}

// rawField is a part of the packet behind the beginning of the network header,
// as nft has it.
func rawField(offset, width int) string { return fmt.Sprintf("@nh,%d,%d", offset, width) }

// laidStatement is the condition on a set that is laid out.
func laidStatement(x *laid, field program.Field, not bool) Statement {
	return Statement{Kind: laidOut, Name: x.set.ID, Field: string(field), Op: operator(not)}
}

// useOf is what one rule does with a set that is laid out.
type useOf struct {
	l      *lowering
	laid   *laid
	field  program.Field
	not    bool      // packets that are not in the set go on to then
	then   Statement // a verdict, a jump, or a goto to a chain that decides
	origin program.Origin
	tag    string // tells the chains of this use from those of others
	made   map[*asking]string
}

// lead gives the statement that ends the rule: packets that are in the set, or
// those that are not, go on to then, the others to the next rule.
func (u *useOf) lead() Statement {
	key := fmt.Sprint(u.laid.set.ID, u.laid.family, u.field, u.not, u.then.text())
	if s, is := u.laid.chains[key]; is {
		return s
	}
	sum := sha256.Sum256([]byte(key))
	u.tag, u.made = hex.EncodeToString(sum[:4]), map[*asking]string{}
	root := u.laid.asking
	var s Statement
	if q := root.questions; !u.not && len(q) == 1 && q[0].leads != nil && root.rest == miss {
		// What is not in the map goes on to the next rule by itself. A goto would
		// go on behind the whole chain, a jump comes back.
		s = Statement{Kind: VerdictMap, Field: u.raw(q[0].leads.part), Set: u.mapOf(root, q[0].leads, Jump).Name}
	} else {
		s = Statement{Kind: Jump, Name: u.chain(root)}
	}
	u.laid.chains[key] = s
	return s
}

func (u *useOf) raw(p part) string {
	return rawField(networkOffset[u.laid.family][u.field]+p.at, p.width)
}

// to is what a packet with an answer does. Chains of a layout are entered by a
// jump, so that to leave them is to go on behind the rule.
func (u *useOf) to(a answer, by Kind) Statement {
	switch {
	case a.on != nil:
		return Statement{Kind: by, Name: u.chain(a.on)}
	case a.hit == u.not:
		return Statement{Kind: Verdict, Name: "return"}
	case u.then.Kind == Jump:
		return Statement{Kind: by, Name: u.then.Name}
	}
	return u.then
}

func (u *useOf) chain(k *asking) string {
	if name, is := u.made[k]; is {
		return name
	}
	name := u.l.freeName(u.stem(k.name) + "_" + u.tag)
	u.made[k] = name
	c := &Chain{Name: name}
	if k == u.laid.asking {
		c.Comment = describe(u.laid.set, u.laid.family, "by parts of the address")
	}
	u.l.tree.Chains = append(u.l.tree.Chains, c)
	rule := func(s ...Statement) {
		c.Rules = append(c.Rules, Rule{Statements: s, Origin: u.origin})
	}
	for _, q := range k.questions {
		switch {
		case q.leads != nil:
			rule(Statement{Kind: VerdictMap, Field: u.raw(q.leads.part), Set: u.mapOf(k, q.leads, Goto).Name})
		case q.keys != nil:
			rule(Statement{Kind: Match, Field: u.raw(q.keys.part), Op: operator(q.not), Set: u.keySet(q.keys).Name}, u.to(q.answer, Goto))
		default:
			rule(Statement{Kind: Match, Field: u.address(), Op: operator(q.not), Set: u.rangeSet(q.ranges).Name}, u.to(q.answer, Goto))
		}
	}
	if s := u.to(k.rest, Goto); s.Kind != Verdict || s.Name != "return" {
		rule(s)
	}
	return name
}

func (u *useOf) address() string {
	if u.field == program.Destination {
		return ipOf(u.laid.family) + " daddr"
	}
	return ipOf(u.laid.family) + " saddr"
}

func (u *useOf) stem(name string) string {
	out := stem(u.laid.set.ID) + strconv.Itoa(u.laid.family)
	if name != "" {
		out += "_" + name
	}
	return out
}

// keep gives a set its name and puts it into the tree.
func (u *useOf) keep(name string, s *Set) *Set {
	s.ID, s.Life, s.Origin = u.laid.set.ID, program.Static, u.laid.set.Origin
	s.Name = u.stem(name) + "_" + s.sealed()
	u.l.tree.Sets = append(u.l.tree.Sets, s)
	return s
}

// rawType is the type of a set's key that is a part of an address: of the
// source, whatever the set is asked for.
func (u *useOf) rawType(p part) []string {
	return []string{rawField(networkOffset[u.laid.family][program.Source]+p.at, p.width)}
}

func (u *useOf) keySet(k *keys) *Set {
	if s := u.laid.sets[k]; s != nil {
		return s
	}
	s := &Set{Types: u.rawType(k.part), Elements: Elements{Tuples: decimals(k.values)}}
	slices.Sort(s.Elements.Tuples)
	u.laid.sets[k] = u.keep(k.name, s)
	return s
}

func (u *useOf) rangeSet(r *intervals) *Set {
	if s := u.laid.sets[r]; s != nil {
		return s
	}
	s := &Set{Types: []string{addressType(u.laid.family)}, Interval: true, Elements: Elements{Addresses: r.set(u.laid.family)}}
	u.laid.sets[r] = u.keep(r.name, s)
	return s
}

// mapOf makes the verdict map of one use.
func (u *useOf) mapOf(k *asking, m *leads, by Kind) *Set {
	s := &Set{Types: u.rawType(m.part), Verdicts: true, Elements: Elements{Tuples: decimals(m.values)}}
	for _, a := range m.answers {
		s.Elements.Verdicts = append(s.Elements.Verdicts, u.to(a, by).text())
	}
	s.Elements.sortTuples()
	s.Comment = describe(u.laid.set, u.laid.family, fmt.Sprintf("%s by %d bits", english.Plural(len(m.values), "block"), m.part.width))
	return u.keep(strings.Trim(k.name+"_map", "_"), s)
}

func decimals(values []uint64) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strconv.FormatUint(v, 10)
	}
	return out
}

// dispatch puts the chains of sets that are laid out in place of the
// conditions on them. A way that has one ends in the statement that leads there,
// since its chains go on to the body; of several, and where the body returns
// from the rule's own chain, the others are asked as plain sets. It gives the
// ways, and whether each is complete without the body.
func (a *actor) dispatch(m *matcher, matches ways, body block) (ways, []bool, error) {
	whole := make([]bool, len(matches))
	var then *Statement
	for i, way := range matches {
		first := slices.IndexFunc(way, func(s Statement) bool { return s.Kind == laidOut })
		if first < 0 {
			continue
		}
		asked := way[first]
		rest := slices.DeleteFunc(slices.Delete(slices.Clone(way), first, first+1), func(s Statement) bool {
			return s.Field == "meta nfproto" // which is said again where it is needed
		})
		for j, s := range rest {
			if s.Kind == laidOut {
				rest[j] = m.l.plain(s, a.family)
			}
		}
		if then == nil {
			s, can, err := a.leaves(body)
			if err != nil {
				return nil, nil, err
			}
			if !can {
				rest = append(rest, m.l.plain(asked, a.family))
				matches[i] = m.complete(rest)
				continue
			}
			then = &s
		}
		u := &useOf{
			l: m.l, laid: m.l.parts[asked.Name].laid[a.family], field: program.Field(asked.Field),
			not: asked.Op == "!=", then: *then, origin: a.rule.Origin,
		}
		matches[i], whole[i] = append(m.complete(rest), u.lead()), true
	}
	return matches, whole, nil
}

// leaves gives the statement by which packets leave the chains of a layout for
// the rule's body. It is false where the body returns from the chain of the
// rule, which no other chain can do for it.
func (a *actor) leaves(body block) (Statement, bool, error) {
	if body.returns() {
		return Statement{}, false, nil
	}
	if len(body) == 1 && len(body[0]) == 1 {
		switch s := body[0][0]; {
		case s.Kind == Verdict && (s.Name == "accept" || s.Name == "drop"), s.Kind == Jump:
			return s, true, nil
		}
	}
	for _, statements := range body {
		for _, s := range statements {
			if s.Kind == Goto && !a.l.decides(s.Name) {
				return Statement{}, false, nil
			}
		}
	}
	s, err := a.enter(body, a.key("then"), origin(a.rule.Origin, a.rule.Comment))
	return s, err == nil, err
}

// decides says whether every packet that enters a chain of the tree leaves it by
// a verdict. Chains of the program, whose rules may not be there yet, are taken
// not to.
func (l *lowering) decides(chain string) bool {
	if l.program.Chain(programName(chain)) != nil {
		return false
	}
	c := l.tree.chain(chain)
	if c == nil {
		return false
	}
	b := make(block, len(c.Rules))
	for i, r := range c.Rules {
		b[i] = r.Statements
	}
	return b.decides() && !b.returns()
}

// plain is the condition on a set as one lookup.
func (l *lowering) plain(s Statement, family int) Statement {
	p := l.parts[s.Name]
	if p.byFam[family] == nil {
		k := static(p.set, family, stem(p.set.ID), elementsFrom(inFamily(allAddresses(p.set).Ranges(), family), false), false)
		p.byFam[family] = []*Set{k}
		l.tree.Sets = append(l.tree.Sets, k)
	}
	side := "saddr"
	if program.Field(s.Field) == program.Destination {
		side = "daddr"
	}
	return Statement{Kind: Match, Field: ipOf(family) + " " + side, Op: s.Op, Set: p.byFam[family][0].Name}
}
