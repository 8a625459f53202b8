package classes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
// denies, or has the set behind not or except, has none of it. What an expectation says of a
// set is then meant of all that it may hold; where it has the set behind not, it is proved for
// the set without members too.
func (c *Class) Hostile(ctx context.Context) ([]*Proof, error) {
	h := hostileOf(c.Policy)
	if len(h.affected) == 0 {
		return nil, nil
	}
	worlds := []map[string]bool{{}}
	for _, name := range h.denied() {
		worlds = append(worlds, map[string]bool{name: true})
	}
	var out []*Proof
	for _, empty := range worlds {
		p := h.policy(empty)
		results, err := c.testAs(ctx, p)
		if err != nil {
			return nil, of(err, c)
		}
		worst := "with all that sets by hosts and guests may hold"
		for name := range empty {
			worst = fmt.Sprintf("with nothing in %s, and all that other sets may hold", name)
		}
		out = append(out, &Proof{Class: c, Results: results, Worst: worst})
	}
	return out, nil
}

// testAs proves the expectations of another policy of the same host, but for those that no
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
	affected map[string]*policy.Set // by hosts or guests, or made of such
}

func hostileOf(p *policy.Policy) *hostile {
	h := &hostile{p, map[string]*policy.Set{}}
	for _, g := range p.Groups() {
		h.affected[g.Name] = g
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

// denied are the sets by hosts or guests that expectations have behind not.
func (h *hostile) denied() []string {
	names := map[string]bool{}
	var reach func(name string)
	reach = func(name string) {
		s := h.affected[name]
		switch {
		case s == nil || names[name]:
			return
		case s.IsGroup():
			names[name] = true
		}
		for _, w := range slices.Concat(s.Union, s.Except) {
			reach(w.Text)
		}
	}
	for _, x := range h.of.Expect {
		for _, who := range []*policy.Who{x.From, x.To} {
			if who != nil && who.Not {
				for _, item := range who.Items {
					reach(item.Name)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// least is what a set that is at its smallest is called; no policy can have such a name.
func least(name string) string { return name + " without members" }

// policy is the policy at its worst, with these groups empty everywhere.
func (h *hostile) policy(empty map[string]bool) *policy.Policy {
	p := *h.of
	p.Sets = nil
	for _, s := range h.of.Sets {
		if h.affected[s.Name] == nil {
			p.Sets = append(p.Sets, s)
			continue
		}
		most, small := *s, *s
		small.Name = least(s.Name)
		if s.IsGroup() {
			small.Elements = nil
			if most.Elements = s.Within; empty[s.Name] {
				most.Elements = nil
			}
		}
		most.Except, small.Union, small.Except = h.smallest(s.Except), h.smallest(s.Union), s.Except
		p.Sets = append(p.Sets, &most, &small)
	}
	p.Ban = h.smallestWhos(p.Ban)
	for _, section := range []**policy.Section{&p.Input, &p.Output, &p.Forward} {
		if *section == nil {
			continue
		}
		of := **section
		of.Rules = slices.Clone(of.Rules)
		for i, r := range of.Rules {
			rule := *r
			allows := r.Action == policy.Allow || r.Action == policy.ClampMSS
			rule.From, rule.To = h.worst(r.From, allows), h.worst(r.To, allows)
			of.Rules[i] = &rule
		}
		*section = &of
	}
	return &p
}

// worst is addresses of a rule: as many as there may be where it allows, unless behind not.
func (h *hostile) worst(w *policy.Who, allows bool) *policy.Who {
	if w == nil || w.Not != allows {
		return w // as many: the name itself stands for that
	}
	out := h.smallestWhos([]policy.Who{*w})[0]
	return &out
}

func (h *hostile) smallestWhos(list []policy.Who) []policy.Who {
	out := slices.Clone(list)
	for i := range out {
		out[i].Items = slices.Clone(out[i].Items)
		for j := range out[i].Items {
			if item := &out[i].Items[j]; h.affected[item.Name] != nil {
				item.Name = least(item.Name)
			}
		}
	}
	return out
}

func (h *hostile) smallest(words []policy.Word) []policy.Word {
	out := slices.Clone(words)
	for i := range out {
		if h.affected[out[i].Text] != nil {
			out[i].Text = least(out[i].Text)
		}
	}
	return out
}
