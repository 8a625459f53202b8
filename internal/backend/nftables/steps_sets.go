package nftables

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/program"
)

// sets defines and fills what is missing. What is there in full is left alone.
func (s *stepper) sets() {
	var missing, together, large []edit
	var repaired []*Set
	for _, k := range s.want.Sets {
		if k.Life == program.Dynamic {
			continue
		}
		h := s.have.Tree.set(k.Name)
		switch {
		case h == nil:
		case k.Life == program.Living:
			continue // edited in place
		case s.used["set "+k.Name]:
			repaired = append(repaired, k)
			continue
		case !h.Elements.Unknown && !k.Counted && !k.Expires && sameElements(k.Elements, h.Elements):
			continue
		default:
			// Nobody uses it and it may be half filled, by a load that was killed.
			fmt.Fprintf(&s.define, "delete %s %s\n", h.noun(), s.at(h.Name))
		}
		missing = append(missing, edit{insert: k, counts: s.counts(k)})
	}
	s.atOnce = !slices.ContainsFunc(s.want.families(), s.comesNew) && !s.begins() && !s.sameRules() && !slices.ContainsFunc(missing, func(f edit) bool {
		return f.insert.Interval && f.insert.Len() > 0 || f.insert.Len() > fewest
	})
	for _, fill := range missing {
		k, elements := fill.insert, ""
		s.chainsOf(k)
		switch {
		case s.atOnce && k.Len() > 0:
			elements = fmt.Sprintf(" elements = { %s };", strings.Join(k.texts(fill.counts), ", "))
		case k.Len() <= small:
			together = append(together, fill)
		default:
			large = append(large, fill)
		}
		fmt.Fprintf(&s.define, "add %s %s { %s%s }\n", k.noun(), s.at(k.Name), k.definition(), elements)
	}
	if !s.atOnce && (s.define.Len() > 0 || slices.ContainsFunc(s.want.families(), s.comesNew)) {
		var tables strings.Builder
		for _, family := range s.want.families() {
			fmt.Fprintf(&tables, "add table %s %s\n", family, s.want.Table)
		}
		s.add(backend.Fill, "definitions", tables.String()+s.define.String())
	}
	s.unmade()
	for _, k := range repaired {
		s.repair(k, s.have.Tree.set(k.Name))
	}
	s.send(backend.Fill, english.Plural(len(together), "small set"), &s.fills, together...)
	for _, fill := range large {
		s.send(backend.Fill, fmt.Sprintf("set %s (%s)", fill.insert.Name, english.Plural(fill.insert.Len(), "element")), &s.fills, fill)
	}
}

// chainsOf makes the chains that the elements of a verdict map lead to, empty:
// the kernel takes no element whose chain is not there.
func (s *stepper) chainsOf(k *Set) {
	for _, verdict := range k.Elements.Verdicts {
		_, chain, _ := strings.Cut(verdict, " ")
		if chain == "" || s.made[chain] || s.have.Tree.chain(chain) != nil {
			continue
		}
		if s.made == nil {
			s.made = map[string]bool{}
		}
		s.made[chain] = true
		fmt.Fprintf(&s.define, "add chain %s\n", s.at(chain))
	}
}

func elementText(verb, at string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s element %s {\n", verb, at)
	wrap(&b, items, "\t")
	b.WriteString("\n}\n")
	return b.String()
}

// counts is what elements of the set's predecessor have counted: a counted set
// goes on counting when it is replaced.
func (s *stepper) counts(k *Set) map[string]backend.Count {
	if !k.Counted {
		return nil
	}
	out := map[string]backend.Count{}
	for _, h := range s.have.Tree.Sets {
		if h.Counted && lineage(h.Name) == lineage(k.Name) {
			for element, c := range h.Elements.Counts {
				if old := out[element]; c.Packets >= old.Packets {
					out[element] = c
				}
			}
		}
	}
	s.countsOfRules(k, out)
	return out
}

// repair puts back what somebody changed by hand in a static set that is in use:
// the one case in which such a set is edited, since its name is right and a
// second set of that name cannot be.
func (s *stepper) repair(k, h *Set) {
	if h.Elements.Unknown {
		return
	}
	s.edit(backend.Fill, "repair set "+k.Name, k, h)
}

// living edits living sets by difference: elements that stay are not touched,
// and keep their counters.
func (s *stepper) living() {
	for _, k := range s.want.Sets {
		h := s.have.Tree.set(k.Name)
		switch {
		case k.Life != program.Living || h == nil:
		case s.ahead:
			remove := *h
			_, remove.Elements = difference(k, h)
			remove.Types = k.Types // nft lists less of them
			s.send(backend.Edit, fmt.Sprintf("set %s (-%d)", k.Name, remove.Len()), nil, edit{remove: &remove})
		default:
			s.edit(backend.Edit, "set "+k.Name, k, h)
		}
	}
}

// comes puts into living sets what is new in them before rules switch, and
// leaves what goes to living, behind the switch. An address may come to a living
// set from the set of ranges beside it, which the switch replaces, or go there:
// at every moment one of the two has it.
func (s *stepper) comes() {
	if s.ahead = !s.sameRules(); !s.ahead {
		return
	}
	for _, k := range s.want.Sets {
		h := s.have.Tree.set(k.Name)
		if k.Life != program.Living || h == nil {
			continue
		}
		missing, _ := difference(k, h)
		insert := *k
		insert.Elements = missing
		insert.Elements.Counters = k.Elements.Counters
		s.send(backend.Fill, fmt.Sprintf("set %s (+%d)", k.Name, insert.Len()), nil, edit{insert: &insert, counts: s.counts(k)})
	}
}

func (s *stepper) edit(purpose backend.Purpose, name string, k, h *Set) {
	missing, extra := difference(k, h)
	insert, remove := *k, *h
	insert.Elements, remove.Elements = missing, extra
	remove.Types = k.Types // nft lists less of them
	insert.Elements.Counters = k.Elements.Counters
	name = fmt.Sprintf("%s (+%d -%d)", name, insert.Len(), remove.Len())
	s.send(purpose, name, nil, edit{remove: &remove, insert: &insert, counts: s.counts(k)})
}

// sameElements says whether two sets hold the same.
func sameElements(a, b Elements) bool {
	return slices.Equal(a.Tuples, b.Tuples) && slices.Equal(a.Verdicts, b.Verdicts) && a.all().Equal(b.all())
}

// difference says what is missing in a set of the kernel and what is there too
// much. Of uncounted sets addresses count, not how they are cut into elements;
// but what is to be deleted has to be an element as the kernel has it.
func difference(want, have *Set) (missing, extra Elements) {
	if want.Expires {
		return expiringDifference(want, have, time.Now())
	}
	missing, extra = tupleDifference(want.Elements, have.Elements)
	w, h := want.Elements.all(), have.Elements.all()
	switch {
	case !want.Counted && w.Equal(h):
		return missing, extra
	case !want.Interval:
		// Each address is an element.
		missing.Addresses, extra.Addresses = w.Difference(h), h.Difference(w)
		return missing, extra
	}
	wanted, held := map[addrset.Range]bool{}, map[addrset.Range]bool{}
	for r := range want.ranges() {
		wanted[r] = true
	}
	for r := range have.ranges() {
		held[r] = true
		if !wanted[r] {
			extra.Ranges = append(extra.Ranges, r)
		}
	}
	for r := range want.ranges() {
		if !held[r] {
			missing.Ranges = append(missing.Ranges, r)
		}
	}
	return missing, extra
}

// tupleDifference is difference for sets whose elements are no plain addresses;
// an element with another verdict is another one.
func tupleDifference(want, have Elements) (missing, extra Elements) {
	subtract := func(a, b Elements) (out Elements) {
		for i, t := range a.Tuples {
			j, found := slices.BinarySearch(b.Tuples, t)
			if found && (len(a.Verdicts) == 0 || a.Verdicts[i] == b.Verdicts[j]) {
				continue
			}
			out.Tuples = append(out.Tuples, t)
			if len(a.Verdicts) > 0 {
				out.Verdicts = append(out.Verdicts, a.Verdicts[i])
			}
		}
		return out
	}
	return subtract(want, have), subtract(have, want)
}
