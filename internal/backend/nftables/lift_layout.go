package nftables

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// Chains that ask for parts of an address, each where those before left it: what
// they say together is one set of addresses for each thing that happens to a packet.
// The walk carries the addresses that get to a place, so that it costs as much as
// there are elements, and comes out with few sets.

// maxWork bounds how many blocks of addresses are looked at for one tree.
const maxWork = 16 << 20

var errTooMuch = errors.New("it matches too many parts of an address to combine")

// offset says whether a statement looks at a part of the packet without a name.
func (w *ruleLifter) offset(s Statement) bool { return strings.HasPrefix(s.Field, "@nh,") }

// asksOffsets says whether a chain and those that it leads to look at one address
// alone, and at parts of it.
func (r *lifter) asksOffsets(name string) bool {
	if r.offsets == nil {
		r.offsets = map[string]bool{}
		for again := true; again; {
			again = false
			for _, c := range r.tree.Chains {
				if !r.offsets[c.Name] && c.Base == nil && r.addressChain(c) && r.offsetIn(c) {
					r.offsets[c.Name], again = true, true
				}
			}
		}
	}
	return r.offsets[name]
}

// addressChain says whether a chain's rules ask for addresses and decide, no more.
func (r *lifter) addressChain(c *Chain) bool {
	if c == nil || c.Base != nil {
		return false
	}
	return !slices.ContainsFunc(c.Rules, func(k Rule) bool {
		for i, s := range k.Statements {
			switch s.Kind {
			case Match:
				_, _, part := offsetOf(s.Field)
				if s.Mask != "" || s.Op != "==" && s.Op != "!=" || !part && addressField(s.Field) == "" {
					return true
				}
			case VerdictMap:
				if _, _, part := offsetOf(s.Field); !part || s.Mask != "" || i != len(k.Statements)-1 {
					return true
				}
			case Verdict, Goto, Jump:
				if i != len(k.Statements)-1 {
					return true
				}
			default:
				return true
			}
		}
		return false
	})
}

// offsetIn says whether a chain asks for a part of an address, or leads to one that
// does.
func (r *lifter) offsetIn(c *Chain) bool {
	return slices.ContainsFunc(c.Rules, func(k Rule) bool {
		return slices.ContainsFunc(k.Statements, func(s Statement) bool {
			return strings.HasPrefix(s.Field, "@") || (s.Kind == Goto || s.Kind == Jump) && r.offsets[s.Name]
		})
	})
}

// addressField is the field of a program that a field of nft is, where it is an
// address in the packet's own header.
func addressField(field string) program.Field {
	switch field {
	case "ip saddr", "ip6 saddr":
		return program.Source
	case "ip daddr", "ip6 daddr":
		return program.Destination
	}
	return ""
}

// offsetOf reads "@nh,96,8".
func offsetOf(field string) (offset, width int, ok bool) {
	rest, is := strings.CutPrefix(field, "@nh,")
	a, b, two := strings.Cut(rest, ",")
	if !is || !two {
		return 0, 0, false
	}
	offset, err1 := strconv.Atoi(a)
	width, err2 := strconv.Atoi(b)
	return offset, width, err1 == nil && err2 == nil && width > 0 && width <= 64
}

// walker follows a layout for one field and family.
type walker struct {
	*lifter
	family int
	field  program.Field
	leaves map[program.Action]*addrset.Builder
	jumps  int // chains that were jumped to within the layout and that come back
	depth  int
}

// familyKnown is the one family that the rule's conditions leave.
func (w *ruleLifter) familyKnown() int {
	for _, c := range slices.Concat(w.above, w.match) {
		if c.Field == program.Family && !c.Not && len(c.Numbers) == 1 && c.Numbers[0].From == c.Numbers[0].To {
			return int(c.Numbers[0].From) //nolint:gosec // 4 or 6
		}
	}
	return 0
}

// part tells which bits of which address a part of the network header is.
func partOf(field string, family int) (program.Field, part, bool) {
	offset, width, ok := offsetOf(field)
	if !ok {
		return "", part{}, false
	}
	for _, f := range []program.Field{program.Source, program.Destination} {
		begin, bits := networkOffset[family][f], 32
		if family == 6 {
			bits = 128
		}
		if begin > 0 && offset >= begin && offset+width <= begin+bits {
			return f, part{at: offset - begin, width: width}, true
		}
	}
	return "", part{}, false
}

func allOf(family int) addrset.Set { return addrset.Set{}.ComplementIn(addrset.Family(family)) } //nolint:gosec // 4 or 6

// offsetCondition lifts a match on a part of an address in the middle of a rule.
func (w *ruleLifter) offsetCondition(s Statement) (program.Condition, error) {
	family := w.familyKnown()
	if family == 0 {
		return program.Condition{}, errors.New("a part of the header of an unknown family")
	}
	field, _, ok := partOf(s.Field, family)
	if !ok {
		return program.Condition{}, errors.New("a part of the header that is not part of an address")
	}
	k := &walker{lifter: w.lifter, family: family, field: field}
	in, err := k.matching(s, allOf(family))
	if err != nil {
		return program.Condition{}, err
	}
	return program.Condition{Field: field, Set: w.keep(w.chain, w.number, in)}, nil
}

// layout lifts a rule whose last statement leads into chains that ask for parts of
// an address.
func (w *ruleLifter) layout(s Statement) ([]program.Rule, error) {
	family := w.familyKnown()
	if family == 0 {
		return nil, errors.New("a part of the header of an unknown family")
	}
	if len(w.actions) > 0 || w.inner || w.counts {
		return nil, errors.New("it matches parts of an address after an action")
	}
	k := &walker{lifter: w.lifter, family: family, leaves: map[program.Action]*addrset.Builder{}}
	if err := k.root(s); err != nil {
		return nil, err
	}
	if k.field == "" {
		return nil, errors.New("it matches no address")
	}
	var out []program.Rule
	for _, action := range k.sorted() {
		rule := *w
		where := k.leaves[action].Set()
		rule.match = append(slices.Clone(w.match), program.Condition{Field: k.field, Set: w.keep(w.chain, w.number, where)})
		rule.actions = []program.Action{action}
		switch e := program.EffectOf(action); {
		case e.Calls != "":
			if g := w.gate(e.Calls); g != nil && w.fits(g) {
				rule.actions = nil
				more, err := rule.throughGate(g)
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
				continue
			}
			rule.actions = []program.Action{program.Jump{Chain: w.lead(e.Calls)}}
		case e.Goes != "":
			rule.actions = []program.Action{program.Goto{Chain: w.lead(e.Goes)}}
		}
		out = append(out, rule.made())
	}
	return out, nil
}

func (k *walker) sorted() []program.Action {
	var out []program.Action
	for a := range k.leaves {
		out = append(out, a)
	}
	sorting.By(out, func(a, b program.Action) int { return strings.Compare(program.ActionText(a), program.ActionText(b)) })
	return out
}

func (k *walker) leaf(a program.Action, in addrset.Set) {
	if in.IsEmpty() {
		return
	}
	if k.leaves[a] == nil {
		k.leaves[a] = &addrset.Builder{}
	}
	k.leaves[a].AddSet(in)
}

// root walks from the rule that leads into the layout.
func (k *walker) root(s Statement) error {
	if s.Kind != VerdictMap {
		return k.rootVerdict(Statement{Kind: s.Kind, Name: s.Name}, allOf(k.family))
	}
	return k.each(s, allOf(k.family), k.rootVerdict)
}

// rootVerdict is what the rule itself does with some addresses: what comes back
// from a chain that it jumps to goes on with the next rule, and what comes back from
// one that it goes to leaves its own chain.
func (k *walker) rootVerdict(v Statement, in addrset.Set) error {
	switch {
	case v.Kind == Verdict:
		switch v.Name {
		case "accept", "drop", "return":
			k.leaf(program.Verdict(v.Name), in)
		case "continue":
		default:
			return errUnknown
		}
		return nil
	case !k.asksOffsets(v.Name) && v.Kind == Jump:
		k.leaf(program.Jump{Chain: v.Name}, in)
		return nil
	case !k.asksOffsets(v.Name):
		k.leaf(program.Goto{Chain: v.Name}, in)
		return nil
	}
	inner := &walker{lifter: k.lifter, family: k.family, field: k.field, leaves: map[program.Action]*addrset.Builder{}}
	back, err := inner.chain(v.Name, in)
	if err != nil {
		return err
	}
	k.field = inner.field
	for a, b := range inner.leaves {
		if to := program.EffectOf(a).Goes; to != "" && v.Kind == Jump {
			a = program.Jump{Chain: to}
		}
		k.leaf(a, b.Set())
	}
	if v.Kind == Goto {
		k.leaf(program.Return, back)
	}
	return nil
}

// chain walks a chain with the addresses that get there and gives those that come
// back from it.
func (k *walker) chain(name string, in addrset.Set) (back addrset.Set, err error) {
	c := k.tree.chain(name)
	if c == nil {
		return back, fmt.Errorf("there is no chain %s", name)
	}
	if k.depth++; k.depth > maxChains {
		return back, errTooMuch
	}
	defer func() { k.depth-- }()
	rest := in
	var returned addrset.Builder
	for _, rule := range c.Rules {
		hit := rest
		var gone, again addrset.Builder
		verdict := func(v Statement, hit addrset.Set) error {
			if hit.IsEmpty() || v.Kind == Verdict && v.Name == "continue" {
				return nil
			}
			gone.AddSet(hit)
			switch {
			case v.Kind == Verdict && v.Name == "return":
				returned.AddSet(hit)
			case v.Kind == Verdict:
				k.leaf(program.Verdict(v.Name), hit)
			case v.Kind == Goto && k.asksOffsets(v.Name):
				more, err := k.chain(v.Name, hit)
				returned.AddSet(more)
				return err
			case v.Kind == Goto && k.jumps > 0:
				return errors.New("it goes to another chain, from which packets return")
			case v.Kind == Goto:
				k.leaf(program.Goto{Chain: v.Name}, hit)
			case v.Kind == Jump && k.asksOffsets(v.Name):
				k.jumps++
				more, err := k.chain(v.Name, hit)
				k.jumps--
				again.AddSet(more)
				return err
			default:
				return errors.New("it jumps between parts of an address")
			}
			return nil
		}
		for _, s := range rule.Statements {
			switch s.Kind {
			case Match:
				hit, err = k.matching(s, hit)
			case VerdictMap:
				err = k.each(s, hit, verdict)
			default:
				err = verdict(s, hit)
			}
			if err != nil {
				return back, err
			}
		}
		rest = rest.Difference(gone.Set()).Union(again.Set())
	}
	returned.AddSet(rest)
	return returned.Set(), nil
}

// maxChains is the kernel's own bound of chains that one leads to in turn, with room
// for those that a goto leads to.
const maxChains = 64
