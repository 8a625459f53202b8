package nftables

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/english"
	"sluice/internal/program"
)

// listedElements is how many elements of a set are named one by one; of more
// only the numbers are given.
const listedElements = 64

// compare says by meaning where the kernel differs from the tree. The values of
// counters are outside, and of dynamic sets all elements that a rule may have made.
// The objects of an older tree, unless that is nil, may be there too.
func compare(want *Tree, have *State, older *Tree) []backend.Difference {
	c := &comparer{want: want, have: have, older: kept{older}}
	switch {
	case !have.Present && len(want.Chains) == 0:
		return nil
	case !have.Present:
		return []backend.Difference{{Kind: "table", Name: "inet " + want.Table, Want: english.Plural(want.ruleCount(), "rule")}}
	}
	for _, family := range have.Tree.Dormant {
		c.add("table", family+" "+want.Table, "asked by the kernel", "dormant: the kernel evaluates none of its chains", program.Origin{})
	}
	for _, family := range have.families() {
		if !slices.Contains(want.families(), family) && !c.older.family(family) {
			c.add("table", family+" "+want.Table, "", "table "+family+" "+want.Table, program.Origin{})
		}
	}
	c.objects()
	c.sets()
	c.chains()
	c.grace()
	return c.out
}

type comparer struct {
	want  *Tree
	have  *State
	out   []backend.Difference
	older kept
}

func (c *comparer) add(kind, name, want, have string, o program.Origin) {
	c.out = append(c.out, backend.Difference{Kind: kind, Name: name, Want: want, Have: have, Origin: o})
}

// both walks two lists by name.
func both[T any](want, have []T, name func(T) string, say func(w, h *T)) {
	for i := range want {
		at := slices.IndexFunc(have, func(h T) bool { return name(h) == name(want[i]) })
		if at < 0 {
			say(&want[i], nil)
			continue
		}
		say(&want[i], &have[at])
	}
	for i := range have {
		if !slices.ContainsFunc(want, func(w T) bool { return name(w) == name(have[i]) }) {
			say(nil, &have[i])
		}
	}
}

func (c *comparer) objects() {
	both(c.want.Counters, c.have.Tree.Counters, func(x Counter) string { return x.Name }, func(w, h *Counter) {
		switch {
		case h == nil:
			c.add("counter", w.ID, "counter "+w.Name, "", program.Origin{})
		case w == nil && c.older.counter(h.Name):
		case w == nil:
			c.add("counter", h.ID, "", "counter "+h.Name, program.Origin{})
		}
	})
	both(c.want.Limits, c.have.Tree.Limits, func(x Limit) string { return x.Name }, func(w, h *Limit) {
		switch {
		case h == nil:
			c.add("limit", w.Name, w.Rate.text(), "", program.Origin{})
		case w == nil && c.older.limit(h.Name):
		case w == nil:
			c.add("limit", h.Name, "", h.Rate.text(), program.Origin{})
		case w.Rate != h.Rate:
			c.add("limit", w.Name, w.Rate.text(), h.Rate.text(), program.Origin{})
		}
	})
	both(c.want.Flowtables, c.have.Tree.Flowtables, func(x Flowtable) string { return x.Name }, func(w, h *Flowtable) {
		switch {
		case h == nil:
			c.add("flowtable", w.Name, w.body(), "", program.Origin{})
		case w == nil:
			c.add("flowtable", h.Name, "", h.body(), program.Origin{})
		case !w.same(*h):
			c.add("flowtable", w.Name, w.body(), h.body(), program.Origin{})
		}
	})
	for _, e := range c.have.Extra {
		c.add(e.Kind, e.Name, "", e.Kind+" "+e.Name, program.Origin{})
	}
}

// sets compares the sets that the tree wants with those that the kernel's rules
// use: a set of the same lineage with other contents is that set changed.
func (c *comparer) sets() {
	used := c.have.Tree.used()
	byLineage := map[string]*Set{}
	for _, h := range c.have.Tree.Sets {
		if old := byLineage[lineage(h.Name)]; old == nil || used["set "+h.Name] && !used["set "+old.Name] {
			byLineage[lineage(h.Name)] = h
		}
	}
	wanted := map[string]bool{}
	for _, k := range c.want.Sets {
		h := c.have.Tree.set(k.Name)
		if h == nil {
			h = byLineage[lineage(k.Name)]
		}
		if h == nil {
			c.add("set", k.title(), english.Plural(k.Len(), "element"), "", k.Origin)
			continue
		}
		wanted[h.Name] = true
		c.set(k, h)
	}
	for _, h := range c.have.Tree.Sets {
		if !wanted[h.Name] && !c.older.set(h.Name) {
			c.add(h.noun(), h.Name, "", h.noun()+" "+h.Name+contentsText(h), program.Origin{})
		}
	}
}

func contentsText(s *Set) string {
	if s.Elements.Unknown || s.Life == program.Dynamic {
		return ""
	}
	return " (" + english.Plural(s.Len(), "element") + ")"
}

// title is a set's name for a reader: as the policy has it, with the family.
func (s *Set) title() string {
	if s.ID == "" {
		return s.Name
	}
	for _, t := range s.Types {
		switch t {
		case "ipv4_addr":
			return s.ID + " (IPv4)"
		case "ipv6_addr":
			return s.ID + " (IPv6)"
		}
	}
	return s.ID
}

func (c *comparer) set(k, h *Set) {
	if a, b := k.definition(), h.definitionOf(k); a != b {
		c.add("set", k.title(), a, b, k.Origin)
	}
	for i, e := range h.Strange {
		if i == listedElements {
			c.add("element", k.title(), "", fmt.Sprintf("%d more elements that no rule made", len(h.Strange)-i), k.Origin)
			break
		}
		c.add("element", k.title(), e.want(), e.text(), k.Origin)
	}
	if k.Life == program.Dynamic || h.Elements.Unknown {
		if h.Elements.Unknown && k.Name != h.Name {
			c.add("set", k.title(), english.Plural(k.Len(), "element"), "other contents", k.Origin)
		}
		return
	}
	missing, extra := *k, *h
	missing.Elements, extra.Elements = elementsApart(k, h)
	if missing.Len()+extra.Len() > listedElements {
		c.add("set", k.title(), english.Plural(k.Len(), "element"),
			fmt.Sprintf("%s: %d missing, %d extra", english.Plural(h.Len(), "element"), missing.Len(), extra.Len()), k.Origin)
		return
	}
	for _, text := range missing.texts(nil) {
		c.add("element", k.title(), text, "", k.Origin)
	}
	for _, text := range extra.texts(nil) {
		c.add("element", k.title(), "", text, k.Origin)
	}
}

// elementsApart compares addresses, not how they are cut into elements.
func elementsApart(k, h *Set) (missing, extra Elements) {
	if k.Expires {
		return expiringDifference(k, h, time.Now())
	}
	missing, extra = tupleDifference(k.Elements, h.Elements)
	want, have := k.Elements.all(), h.Elements.all()
	missing.Addresses, extra.Addresses = want.Difference(have), have.Difference(want)
	return missing, extra
}

// grace: a moment in which connections pass that ran before is the policy's own. One
// that lasts longer is not, whoever made it.
func (c *comparer) grace() {
	g := &c.have.grace
	given := "for good"
	if !g.forEver {
		given = "for " + g.given.String()
	}
	if g.live() && (g.forEver || g.given > c.want.graceTime()) {
		c.out = append(c.out, backend.Difference{
			Kind: "set", Name: graceSet, Want: "TCP of unknown connections passes for at most " + c.want.graceTime().String(), Have: given, Longer: true,
		})
	}
}

func (c *comparer) chains() {
	for _, k := range c.want.Chains {
		h := c.have.Tree.chain(k.Name)
		if h == nil {
			c.add("chain", k.Name, k.title(), "", program.Origin{})
			continue
		}
		if a, b := k.title(), h.title(); a != b {
			c.add("chain", k.Name, a, b, program.Origin{})
		}
		c.rules(k, h)
	}
	for _, h := range c.have.Tree.Chains {
		if c.want.chain(h.Name) == nil && !c.older.chain(h) {
			c.add("chain", h.Name, "", h.title(), program.Origin{})
		}
	}
}

func (c *Chain) title() string {
	if c.Base == nil {
		return "chain " + c.Name
	}
	return "chain " + c.Name + ": " + strings.TrimSuffix(c.Base.text(), ";")
}

// ruleKey is what two rules have to share to be the same rule: everything but
// the comment, and of a static set not the contents.
func ruleKey(r Rule) string {
	statements := normal(r.Statements)
	for i := range statements {
		statements[i].Set = lineage(statements[i].Set)
	}
	return Rule{Statements: statements}.text()
}

// rules tells which rules were put in, taken out or changed.
func (c *comparer) rules(k, h *Chain) {
	want, have := keysOf(k.Rules), keysOf(h.Rules)
	i, j := 0, 0
	for _, pair := range append(common(want, have), [2]int{len(want), len(have)}) {
		for ; i < pair[0] && j < pair[1]; i, j = i+1, j+1 {
			c.add("rule", k.Name, k.Rules[i].text(), h.Rules[j].text(), k.Rules[i].Origin)
		}
		for ; i < pair[0]; i++ {
			c.add("rule", k.Name, k.Rules[i].text(), "", k.Rules[i].Origin)
		}
		for ; j < pair[1]; j++ {
			c.add("rule", k.Name, "", h.Rules[j].text(), program.Origin{})
		}
		i, j = pair[0]+1, pair[1]+1
	}
}

func keysOf(rules []Rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = ruleKey(r)
	}
	return out
}
