package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// mapped says whether a set stands for rules: its elements have verdicts, or
// counters of the program. Such a set keeps its elements as they are, since each
// is a rule's.
func mapped(s *program.Set) bool {
	return s.Verdicts || s.Counters && slices.ContainsFunc(s.Elements, func(e program.Element) bool { return e.Counter != "" })
}

// layoutTuples makes the sets of a set whose key has several parts, or that stands for
// rules: one for each family, a hash where all keys are single values, else with ranges.
func (l *lowering) layoutTuples(p *parts) error {
	s := p.set
	rules := mapped(s)
	switch {
	case rules && s.Life != program.Static:
		return fmt.Errorf("a set that replaces rules is not static")
	case rules && s.Counters && l.can[backend.SetElementCounters] == backend.No:
		return fmt.Errorf("this kernel keeps no counters in sets, and the elements replace rules with counters")
	}
	byFamily := map[int]*Set{}
	elements := map[int][]mapElement{}
	for i := range s.Elements {
		family, wide, e, err := l.mapElement(s, &s.Elements[i])
		if err != nil {
			return err
		}
		k := byFamily[family]
		if k == nil {
			types, err := keyTypesOf(s.Key, family)
			if err != nil {
				return err
			}
			k = &Set{ID: s.ID, Life: program.Static, Types: types, Counted: rules && s.Counters, Verdicts: s.Verdicts, Origin: s.Origin}
			byFamily[family] = k
		}
		k.Interval = k.Interval || wide
		elements[family] = append(elements[family], e)
	}
	for family, k := range byFamily {
		if k.Interval && slices.Contains(s.Key, program.Protocol) {
			return errProtocolOfRanges
		}
		k.hold(elements[family])
		n := len(elements[family])
		if !rules {
			if k.Interval {
				k.Elements.Tuples = apart(s.Key, k.Elements.Tuples)
				slices.Sort(k.Elements.Tuples)
			}
			k.Elements.Tuples = slices.Compact(k.Elements.Tuples)
			n = len(k.Elements.Tuples)
		}
		k.Comment = describe(s, family, english.Plural(n, "element"))
		k.Name = stem(s.ID)
		if family != 0 {
			k.Name += fmt.Sprint(family)
		}
		k.Name += "_" + k.sealed()
		p.byFam[family] = []*Set{k}
	}
	return nil
}

// mapElement is one element on its way into a set.
type mapElement struct {
	tuple, verdict, counter string
	only                    addrset.Range // of sets with one address as key
}

func (l *lowering) mapElement(s *program.Set, e *program.Element) (family int, wide bool, out mapElement, err error) {
	if len(e.Parts) != len(s.Key) {
		return 0, false, out, fmt.Errorf("an element has %d parts, the key has %d", len(e.Parts), len(s.Key))
	}
	values := make([]string, len(e.Parts))
	for i, v := range e.Parts {
		text, f, isRange, err := tuplePart(s.Key[i], v)
		if err != nil {
			return 0, false, out, err
		}
		if f != 0 && family != 0 && f != family {
			return 0, false, out, fmt.Errorf("an element has addresses of both families")
		}
		family, wide = max(family, f), wide || isRange
		values[i] = text
	}
	out.tuple, out.counter = strings.Join(values, " . "), e.Counter
	if len(values) == 1 && family != 0 {
		out.only = addrset.Range{From: e.Parts[0].Addresses.From, To: e.Parts[0].Addresses.To}
	}
	if s.Verdicts {
		out.verdict, err = l.verdictWord(e.Verdict)
	}
	return family, wide, out, err
}

// verdictWord is a verdict as an element has it. Rejecting is no verdict of the
// kernel's, so that it is a chain.
func (l *lowering) verdictWord(v program.Action) (string, error) {
	e := program.EffectOf(v)
	switch {
	case !e.Verdict:
	case e.Decides == program.Reject:
		l.rejects = true
		return "goto " + rejectChain, nil
	case e.Decides != "":
		return string(e.Decides), nil
	case e.Calls != "":
		return "jump " + name(e.Calls), nil
	case e.Goes != "":
		return "goto " + name(e.Goes), nil
	}
	return "", fmt.Errorf("%s is not a verdict for an element", program.ActionText(v))
}

// hold puts the elements into the set in the form in which it would be read.
func (s *Set) hold(elements []mapElement) {
	sorting.By(elements, func(a, b mapElement) int {
		if a.only.IsValid() && b.only.IsValid() && !s.Verdicts {
			return a.only.From.Compare(b.only.From)
		}
		return strings.Compare(a.tuple, b.tuple)
	})
	for _, e := range elements {
		if e.only.IsValid() && s.Counted && !s.Verdicts {
			s.Elements.Ranges = append(s.Elements.Ranges, e.only)
		} else {
			s.Elements.Tuples = append(s.Elements.Tuples, e.tuple)
		}
		if s.Verdicts {
			s.Elements.Verdicts = append(s.Elements.Verdicts, e.verdict)
		}
		if e.counter != "" {
			if s.Elements.Counters == nil {
				s.Elements.Counters = map[string]string{}
			}
			s.Elements.Counters[e.tuple] = e.counter
		}
	}
}

// keyTypesOf gives the types of a key.
func keyTypesOf(key []program.Field, family int) ([]string, error) {
	out := make([]string, len(key))
	for i, f := range key {
		out[i] = keyTypes[f]
		if isAddress(f) {
			out[i] = addressType(family)
		}
		if out[i] == "" {
			return nil, fmt.Errorf("%s cannot be part of a set's key", f)
		}
	}
	return out, nil
}

// verdictMap gives the statement that asks a verdict map; none where the map
// has nothing of the family.
func (a *actor) verdictMap(action program.VerdictMap) ([]Statement, error) {
	p := a.l.parts[action.Set]
	switch {
	case p == nil:
		return nil, fmt.Errorf("no set %s", action.Set)
	case !p.set.Verdicts:
		return nil, fmt.Errorf("set %s is not a verdict map", action.Set)
	case len(action.Key) != len(p.set.Key):
		return nil, fmt.Errorf("set %s has %d keys but is looked up with %d", action.Set, len(p.set.Key), len(action.Key))
	}
	m := &matcher{l: a.l, rule: a.rule, family: a.family}
	fields := make([]string, len(action.Key))
	family := 0
	for i, k := range action.Key {
		field, err := m.fieldOf(k)
		if err != nil {
			return nil, err
		}
		if isAddress(k) {
			family = a.family
		}
		fields[i] = field
	}
	var out []Statement
	for _, k := range p.byFam[family] {
		out = append(out, Statement{Kind: VerdictMap, Field: strings.Join(fields, " . "), Set: k.Name})
	}
	return out, nil
}

// countersOfRules are the counters that are in rules: the others of the
// program are counts of elements.
func countersOfRules(p *program.Program) map[string]bool {
	out := map[string]bool{}
	inElements := map[string]bool{}
	for i := range p.Sets {
		for _, e := range p.Sets[i].Elements {
			inElements[e.Counter] = true
		}
	}
	for i := range p.Chains {
		for _, r := range p.Chains[i].Rules {
			for _, a := range r.Actions {
				e := program.EffectOf(a)
				out[e.Counts], out[e.CountsFull] = true, true
			}
		}
	}
	for _, c := range p.Counters {
		if !inElements[c.Name] {
			out[c.Name] = true // somebody else may name it
		}
	}
	return out
}

// carried says what each counter of the tree had counted, as far as nothing of
// it goes on counting by itself: named counters and elements of sets that stay.
// A rule's count goes with it when the rule moves into a set or out of one, or
// to another element; what is counted between the reading and the switch is
// lost, and nothing is counted twice.
func (s *stepper) carried() map[string]backend.Count {
	if s.carry != nil {
		return s.carry
	}
	s.carry = s.have.Counters()
	less := func(name string, c backend.Count) {
		rest := s.carry[name]
		rest.Packets -= min(rest.Packets, c.Packets)
		rest.Bytes -= min(rest.Bytes, c.Bytes)
		s.carry[name] = rest
	}
	for _, c := range s.want.Counters {
		if value, stays := s.have.Values[c.Name]; stays {
			less(c.ID, value)
		}
	}
	for _, k := range s.want.Sets {
		h := s.have.Tree.set(k.Name)
		if h == nil || !s.used["set "+h.Name] {
			continue
		}
		for element, counter := range h.Elements.Counters {
			less(counter, h.Elements.Counts[element])
		}
	}
	return s.carry
}

// take gives what is left to carry of a counter, once.
func (s *stepper) take(counter string) (backend.Count, bool) {
	carried := s.carried()
	c := carried[counter]
	delete(carried, counter)
	return c, c.Packets > 0
}

// countsOfRules gives elements that stand for rules what their counters had
// counted: the first element of each all of it.
func (s *stepper) countsOfRules(k *Set, out map[string]backend.Count) {
	give := func(element string) {
		if counter := k.Elements.Counters[element]; counter != "" {
			delete(out, element)
			if c, some := s.take(counter); some {
				out[element] = c
			}
		}
	}
	for r := range k.ranges() {
		give(r.String())
	}
	for _, t := range k.Elements.Tuples {
		give(t)
	}
}
