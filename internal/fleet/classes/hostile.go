package classes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/language/policy"
	"sluice/internal/prove/expect"
)

// Proof is what was found of the expectations of a class.
type Proof struct {
	*Class
	Results []expect.Result
	// Worst is what whoever has the controller's keys did with sets, in words; "": nothing.
	Worst string
}

// Test proves the expectations of a class, with what sets hold now.
func (c *Class) Test(ctx context.Context) (*Proof, error) {
	results, err := c.Subject.Test(ctx)
	return &Proof{Class: c, Results: results}, of(err, c)
}

// Hostile proves the expectations of a class whatever the controller's keys make of the members
// of sets: a rule that allows has all that a set may hold within its bounds, and one that
// denies, or has the set behind not or except, has none of it. Of each address, an expectation
// that has a set behind not or except is proved both where the address is in the set and where
// it is not, which rules then know too. Whom the controller may let in is let in to everything;
// bans only remove, and no expectation is held against them.
func (c *Class) Hostile(ctx context.Context) ([]*Proof, error) {
	h := hostileOf(c.Policy)
	if len(h.affected) == 0 && len(h.letIn) == 0 {
		return nil, nil
	}
	worlds, err := h.worlds()
	if err != nil {
		return nil, of(err, c)
	}
	var out []*Proof
	for _, w := range worlds {
		results, err := c.testAs(ctx, h.policy(w))
		if err != nil {
			return nil, of(err, c)
		}
		out = append(out, &Proof{Class: c, Results: results, Worst: h.worst(w)})
	}
	return out, nil
}

// testAs proves the expectations of another policy of the same host, except for those that no
// packet fits there.
func (c *Class) testAs(ctx context.Context, p *policy.Policy) ([]expect.Result, error) {
	for {
		s := *c.Subject
		s.Policy = p
		results, err := s.Test(ctx)
		var wrong policy.Errors
		if !errors.As(err, &wrong) {
			return results, err
		}
		before := len(p.Expect)
		p.Expect = slices.DeleteFunc(slices.Clone(p.Expect), func(x *policy.Expectation) bool {
			return slices.ContainsFunc(wrong, func(e *policy.Error) bool { return e.Pos == x.Pos })
		})
		if len(p.Expect) == before {
			return nil, err
		}
		if len(p.Expect) == 0 {
			return nil, nil
		}
	}
}

// hostile is a policy of whose sets some can be changed by the controller.
type hostile struct {
	of       *policy.Policy
	affected map[string]*policy.Set // by hosts or guests, live lists, or made of such
	letIn    []policy.Who           // whom the controller may let in
}

// changeable says that the controller says what is in a set.
func changeable(s *policy.Set) bool {
	return s.Hosts != nil || s.Guests != nil || s.Live || s.Own && len(s.Within) > 0
}

func hostileOf(p *policy.Policy) *hostile {
	h := &hostile{p, map[string]*policy.Set{}, nil}
	if b := p.Fleet.Exceptions; b != nil && !b.None {
		if h.letIn = b.Who; len(h.letIn) == 0 {
			h.letIn = []policy.Who{everybody(b.Pos)}
		}
	}
	for _, g := range p.Sets {
		if changeable(g) {
			h.affected[g.Name] = g
		}
	}
	for again := true; again; {
		again = false
		for _, s := range p.Sets {
			if h.affected[s.Name] == nil && slices.ContainsFunc(slices.Concat(s.Union, s.Except), func(w policy.Word) bool { return h.affected[w.Text] != nil }) {
				h.affected[s.Name] = s
				again = true
			}
		}
	}
	return h
}

func everybody(pos policy.Pos) policy.Who {
	who := policy.Who{Pos: pos}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		who.Items = append(who.Items, policy.WhoItem{Pos: pos, Literal: addrset.PrefixRange(netip.MustParsePrefix(all))})
	}
	return who
}

// world is in which sets by hosts or guests a packet's source, and its destination, is not.
// These are apart: who is left out of a set need not be who is asked for there.
type world struct {
	from, to map[string]bool
	expect   []*policy.Expectation // that are to be proved in it
}

func (w *world) key() string {
	return strings.Join(slices.Sorted(maps.Keys(w.from)), " ") + "|" + strings.Join(slices.Sorted(maps.Keys(w.to)), " ")
}

// worst says in words what the controller did.
func (h *hostile) worst(w *world) string {
	names := maps.Clone(w.from)
	maps.Copy(names, w.to)
	var all []string
	switch {
	case len(names) > 0:
		all = append(all, fmt.Sprintf("with nothing in %s, and all that other sets may hold", english.List(slices.Sorted(maps.Keys(names)))))
	case len(h.affected) > 0:
		all = append(all, "with all that sets by hosts and guests, and live lists, may hold")
	}
	if len(h.letIn) > 0 {
		all = append(all, "with all let in whom exceptions of the fleet name")
	}
	return strings.Join(all, ", and ")
}

// mostDenied is how many sets one expectation may have behind not and except: there are as
// many worlds as subsets of them.
const mostDenied = 6

// worlds are those in which expectations have to be proved, the first with all of them.
func (h *hostile) worlds() ([]*world, error) {
	first := &world{expect: h.of.Expect}
	out := []*world{first}
	at := map[string]*world{first.key(): first}
	var wrong policy.Errors
	for _, x := range h.of.Expect {
		from, to := h.denied(x.From), h.denied(x.To)
		n := len(from) + len(to)
		if n > mostDenied {
			wrong = append(wrong, h.of.Errorf(x.Pos, "write several expectations, each of fewer sets", "the expectation has %d sets of the controller behind not and except, and what the controller may make of more than %d is not proved", n, mostDenied))
			continue
		}
		for subset := 1; subset < 1<<n; subset++ {
			w := &world{from: map[string]bool{}, to: map[string]bool{}}
			for i, name := range from {
				if subset>>i&1 == 1 {
					w.from[name] = true
				}
			}
			for i, name := range to {
				if subset>>(len(from)+i)&1 == 1 {
					w.to[name] = true
				}
			}
			if known := at[w.key()]; known != nil {
				w = known
			} else {
				at[w.key()] = w
				out = append(out, w)
			}
			w.expect = append(w.expect, x)
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	return out, nil
}

// denied are the sets by hosts or guests of which fewer members mean more packets.
func (h *hostile) denied(who *policy.Who) []string {
	if who == nil {
		return nil
	}
	names := map[string]bool{}
	seen := map[string]bool{}
	var reach func(name string, fewer bool)
	reach = func(name string, fewer bool) {
		s, key := h.affected[name], fmt.Sprint(name, fewer)
		if s == nil || seen[key] {
			return
		}
		seen[key] = true
		if changeable(s) && fewer {
			names[name] = true
		}
		for _, w := range s.Union {
			reach(w.Text, fewer)
		}
		for _, w := range s.Except {
			reach(w.Text, !fewer)
		}
	}
	for _, item := range who.Items {
		reach(item.Name, who.Not)
	}
	return slices.Sorted(maps.Keys(names))
}

// size is how much of a set's members somebody leaves.
type size int

const (
	most  size = iota // what a rule that allows has
	least             // what a rule that denies has
	meant             // all, and excepts without all
)

// versions makes the sets of a world.
type versions struct {
	*hostile
	made map[string]bool
	sets []*policy.Set
}

// name is what a set is called at a size, where some are empty; it is made if it has to be.
// No policy can have such a name but that of a set with all its members.
func (v *versions) name(name string, at size, empty map[string]bool) string {
	s := v.affected[name]
	if s == nil {
		return name
	}
	called := name
	switch {
	case at == least:
		called += " without members"
	case at == meant && v.excepts(name, map[string]bool{}):
		called += " as meant"
	}
	var without []string
	for _, group := range slices.Sorted(maps.Keys(empty)) {
		if v.has(name, group, map[string]bool{}) {
			without = append(without, group)
		}
	}
	if len(without) > 0 {
		called += " without " + strings.Join(without, ", ")
	}
	if v.made[called] {
		return called
	}
	v.made[called] = true
	other := map[size]size{most: least, least: most, meant: meant}[at]
	out := *s
	out.Name, out.Union, out.Except = called, v.words(s.Union, at, empty), v.words(s.Except, other, empty)
	if changeable(s) {
		out.URL, out.File, out.Refresh, out.Live = nil, nil, 0, false
		switch {
		case at == least || empty[name]:
			out.Elements = nil
		case len(s.Within) > 0:
			out.Elements = s.Within
		default: // it may only ban, and whomever it likes
			out.Elements = nil
			for _, all := range everybody(s.Pos).Items {
				out.Elements = append(out.Elements, policy.Range{Pos: s.Pos, Range: all.Literal})
			}
		}
	}
	v.sets = append(v.sets, &out)
	return called
}

func (v *versions) words(words []policy.Word, at size, empty map[string]bool) []policy.Word {
	out := slices.Clone(words)
	for i := range out {
		out[i].Text = v.name(out[i].Text, at, empty)
	}
	return out
}

// excepts says whether a set takes sets of the controller's out of others.
func (h *hostile) excepts(name string, seen map[string]bool) bool {
	s := h.affected[name]
	if s == nil || seen[name] {
		return false
	}
	seen[name] = true
	return slices.ContainsFunc(s.Except, func(w policy.Word) bool { return h.affected[w.Text] != nil }) ||
		slices.ContainsFunc(s.Union, func(w policy.Word) bool { return h.excepts(w.Text, seen) })
}

// has says whether a set is made of another one, or is it.
func (h *hostile) has(name, of string, seen map[string]bool) bool {
	s := h.affected[name]
	if s == nil || seen[name] {
		return false
	}
	seen[name] = true
	return name == of || slices.ContainsFunc(slices.Concat(s.Union, s.Except), func(w policy.Word) bool { return h.has(w.Text, of, seen) })
}

// who is addresses with the sets at a size.
func (v *versions) who(w *policy.Who, at size, empty map[string]bool) *policy.Who {
	if w == nil {
		return nil
	}
	out := *w
	out.Items = slices.Clone(w.Items)
	for i := range out.Items {
		out.Items[i].Name = v.name(out.Items[i].Name, at, empty)
	}
	return &out
}

// policy is the policy at its worst in a world. Whom NAT masquerades decides nothing, and what
// bypasses connection tracking passes more by its answers.
func (h *hostile) policy(w *world) *policy.Policy {
	p, v := *h.of, &versions{hostile: h, made: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(h.affected)) {
		v.name(name, most, nil)
	}
	p.Ban = slices.Clone(p.Ban)
	for i := range p.Ban {
		p.Ban[i] = *v.who(&p.Ban[i], least, w.from)
	}
	p.NeverBan = slices.Clone(p.NeverBan)
	for i := range p.NeverBan {
		p.NeverBan[i] = *v.who(&p.NeverBan[i], most, w.from)
	}
	for _, section := range []**policy.Section{&p.Input, &p.Output, &p.Forward} {
		if *section == nil {
			continue
		}
		of := **section
		of.Rules = slices.Clone(of.Rules)
		for i, r := range of.Rules {
			rule := *r
			allows := r.Action == policy.Allow || r.Action == policy.ClampMSS
			rule.From, rule.To = v.worst(r.From, allows, w.from), v.worst(r.To, allows, w.to)
			of.Rules[i] = &rule
		}
		*section = &of
	}
	var in []policy.Who
	for i := range h.letIn {
		in = append(in, *v.who(&h.letIn[i], most, w.from))
	}
	p.LetIn(in)
	p.Expect = nil
	for _, x := range w.expect {
		line := *x
		line.From, line.To = v.who(x.From, meant, w.from), v.who(x.To, meant, w.to)
		p.Expect = append(p.Expect, &line)
	}
	p.Sets = slices.Concat(slices.DeleteFunc(slices.Clone(h.of.Sets), func(s *policy.Set) bool { return h.affected[s.Name] != nil }), v.sets)
	return &p
}

// worst is addresses of a rule: as many as there may be where it allows, unless behind not.
func (v *versions) worst(w *policy.Who, allows bool, empty map[string]bool) *policy.Who {
	if w == nil || w.Not != allows {
		return v.who(w, most, empty)
	}
	return v.who(w, least, empty)
}
