package check

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/language/policy"
)

// redundantElements finds entries of lists without which the list means the
// same: doubles, addresses within others, sets within others, exceptions that
// take nothing out.
func (c *checker) redundantElements() {
	for _, s := range c.policy.Sets {
		c.setEntries(s)
		c.fileEntries(s)
		c.unionParts(s)
		c.exceptions(s)
	}
	for _, s := range c.sections() {
		for _, r := range s.Rules {
			c.whoItems(r.From)
			c.whoItems(r.To)
			c.serviceRefs(r.Services)
		}
	}
	c.banItems(c.policy.Ban)
	c.banItems(c.policy.NeverBan)
	for i := range c.policy.Tracking.Bypass {
		c.whoItems(c.policy.Tracking.Bypass[i].To)
		c.serviceRefs(c.policy.Tracking.Bypass[i].Services)
	}
}

const takeOut = "remove it"

// shownEntries is up to how many entries of one set are told one by one.
const shownEntries = 10

// entry is one entry of a list with its place.
type entry struct {
	addresses addrset.Range
	pos       policy.Pos
}

// contained gives pairs of entries, the first within the second; of two that are
// equal the later one is within the earlier.
func contained(entries []entry) (pairs [][2]entry) {
	sorted := slices.Clone(entries)
	sorting.StableBy(sorted, func(a, b entry) int {
		return cmp.Or(a.addresses.From.Compare(b.addresses.From), b.addresses.To.Compare(a.addresses.To))
	})
	var widest entry
	for i, e := range sorted {
		if i > 0 && widest.addresses.ContainsRange(e.addresses) {
			pairs = append(pairs, [2]entry{e, widest})
			continue
		}
		if i == 0 || !widest.addresses.ContainsRange(e.addresses) {
			widest = e
		}
	}
	sorting.StableBy(pairs, func(a, b [2]entry) int {
		return cmp.Or(cmp.Compare(a[0].pos.File, b[0].pos.File), cmp.Compare(a[0].pos.Line, b[0].pos.Line), cmp.Compare(a[0].pos.Column, b[0].pos.Column))
	})
	return pairs
}

func (c *checker) setEntries(s *policy.Set) {
	entries := make([]entry, 0, len(s.Elements))
	for _, e := range s.Elements {
		entries = append(entries, entry{e.Range, e.Pos})
	}
	pairs := contained(entries)
	for i, p := range pairs {
		if i == shownEntries {
			c.report(RedundantElement, Remark, s.Pos, takeOut, "%d more entries of set %q are covered by other entries", len(pairs)-i, s.Name)
			break
		}
		if p[0].addresses == p[1].addresses {
			c.report(RedundantElement, Remark, p[0].pos, takeOut, "%s is in set %q twice, see %s", p[0].addresses, s.Name, place(p[1].pos, p[0].pos))
		} else {
			c.report(RedundantElement, Remark, p[0].pos, takeOut, "%s is covered by %s of the same set", p[0].addresses, p[1].addresses)
		}
	}
	except := c.union(s.Except)
	redundant := map[policy.Pos]bool{}
	for _, p := range pairs {
		redundant[p[0].pos] = true
	}
	for _, e := range entries {
		if !redundant[e.pos] && !c.unsteadyWords(s.Except) && except.ContainsSet(addrset.Of(e.addresses)) {
			c.report(RedundantElement, Remark, e.pos, "remove it, or narrow the exceptions", "the exceptions of set %q remove all of %s again", s.Name, e.addresses)
		}
	}
}

func (c *checker) unsteadyWords(words []policy.Word) bool {
	return slices.ContainsFunc(words, func(w policy.Word) bool { return c.unsteadySet(w.Text, 0) })
}

func (c *checker) union(words []policy.Word) addrset.Set {
	var out addrset.Set
	for _, w := range words {
		if s := c.Sets[w.Text]; s != nil {
			out = out.Union(s.Addresses)
		}
	}
	return out
}

// fileEntries sums up what of a file is in other entries of it. Of a list that is
// signed nobody here writes the entries.
func (c *checker) fileEntries(s *policy.Set) {
	if s.File == nil || s.URL != nil || c.options.Open == nil {
		return
	}
	name := s.FilePath()
	file, err := c.options.Open(name)
	if err != nil {
		return // it was read before, so this is not what is wrong with the policy
	}
	defer func() { _ = file.Close() }()
	var entries []entry
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		text, _, _ = strings.Cut(text, ";")
		r, err := addrset.ParseRange(strings.TrimSpace(strings.TrimPrefix(text, "\ufeff")))
		if err == nil {
			entries = append(entries, entry{r, policy.Pos{File: name, Line: n, Column: 1}})
		}
	}
	pairs := contained(entries)
	if len(pairs) == 0 {
		return
	}
	first := pairs[0]
	of := fmt.Sprintf("1 of %d entries", len(entries))
	verb := "is"
	if len(pairs) > 1 {
		of, verb = fmt.Sprintf("%d of %d entries", len(pairs), len(entries)), "are"
	}
	f := c.report(RedundantElement, Remark, s.File.Pos, "remove them from the file",
		"%s of %s %s covered by others: %s on line %d by %s on line %d", of, s.File.Text, verb, first[0].addresses, first[0].pos.Line, first[1].addresses, first[1].pos.Line)
	for i, p := range pairs {
		if i == shownEntries {
			break
		}
		f.Related = append(f.Related, Related{p[0].pos, p[0].addresses.String()})
	}
}

// part is a named or literal part of a list.
type part struct {
	pos      policy.Pos
	text     string
	set      addrset.Set
	unsteady bool
	byGeo    bool // made of countries alone, which are in their continent by definition
}

func (c *checker) setPart(pos policy.Pos, name string) (part, bool) {
	s, set := c.policy.Set(name), c.Sets[name]
	if s == nil || set == nil || set.IsEndpoints() || set.Addresses.IsEmpty() {
		return part{}, false
	}
	byGeo := len(s.Countries)+len(s.Continents) > 0 && len(s.Except) == 0
	return part{pos, name, set.Addresses, c.unsteadySet(name, 0), byGeo}, true
}

// redundantParts finds parts that the others together hold already, from the
// last to the first, so that of two that are equal one stays.
func (c *checker) redundantParts(parts []part, where string) {
	for i := len(parts) - 1; i >= 0 && len(parts) > 1; i-- {
		p := parts[i]
		var others addrset.Set
		var holding []string
		for j, o := range parts {
			// What changes without the policy holds today only.
			if j == i || o.unsteady && (!o.byGeo || !p.byGeo) {
				continue
			}
			others = others.Union(o.set)
			if o.set.Overlaps(p.set) {
				holding = append(holding, o.text)
			}
		}
		if !p.set.IsEmpty() && others.ContainsSet(p.set) && (!p.unsteady || p.byGeo) {
			verb := "cover"
			if len(holding) == 1 {
				verb = "covers"
			}
			c.report(RedundantElement, Remark, p.pos, takeOut, "%s adds nothing to this %s: %s %s all of it", p.text, where, english.List(holding), verb)
			parts = slices.Delete(slices.Clone(parts), i, i+1)
		}
	}
}

func (c *checker) unionParts(s *policy.Set) {
	var parts []part
	for _, w := range s.Union {
		if p, ok := c.setPart(w.Pos, w.Text); ok {
			parts = append(parts, p)
		}
	}
	c.redundantParts(parts, "union")
}

// exceptions finds those that take nothing out.
func (c *checker) exceptions(s *policy.Set) {
	if len(s.Except) == 0 || s.URL != nil || len(s.Countries)+len(s.Continents) > 0 || c.unsteadyWords(s.Union) || c.Sets[s.Name] == nil {
		return
	}
	for i, w := range s.Except {
		p, ok := c.setPart(w.Pos, w.Text)
		if !ok || p.unsteady {
			continue
		}
		// What the set would hold without its exceptions is what it holds and
		// what they took; only without overlap with any entry it is known for
		// files too.
		if !c.before(s).Overlaps(p.set) {
			c.report(RedundantElement, Remark, w.Pos, takeOut, "the exception %s removes nothing from set %q", w.Text, s.Name)
			continue
		}
		rest := slices.Delete(slices.Clone(s.Except), i, i+1)
		if !c.unsteadyWords(rest) && c.union(rest).ContainsSet(p.set) {
			c.report(RedundantElement, Remark, w.Pos, takeOut, "the exception %s has no effect: the other exceptions cover all of it", w.Text)
			return
		}
	}
}

// before is what a set holds before its exceptions, as far as the policy says
// it; of a file everything may be in it.
func (c *checker) before(s *policy.Set) addrset.Set {
	if s.File != nil {
		return addrset.All()
	}
	out := c.union(s.Union)
	for _, e := range s.Elements {
		out = out.Union(addrset.Of(e.Range))
	}
	return out
}

func (c *checker) whoItems(w *policy.Who) {
	if w == nil || len(w.Items) < 2 {
		return
	}
	c.redundantParts(c.itemParts(w.Items), "list")
}

// banItems looks at ban or never-ban, each line of which is a part.
func (c *checker) banItems(lines []policy.Who) {
	var items []policy.WhoItem
	for _, w := range lines {
		items = append(items, w.Items...)
	}
	parts := c.itemParts(items)
	// A set that counts its elements counts what another one holds too.
	parts = slices.DeleteFunc(parts, func(p part) bool { s := c.policy.Set(p.text); return s != nil && s.Counters })
	c.redundantParts(parts, "list")
}

func (c *checker) itemParts(items []policy.WhoItem) (parts []part) {
	for _, item := range items {
		z := c.Zones[item.Name]
		switch {
		case item.Name == "":
			parts = append(parts, part{pos: item.Pos, text: item.Literal.String(), set: addrset.Of(item.Literal)})
		case z != nil && len(z.Interfaces) == 0:
			parts = append(parts, part{pos: item.Pos, text: item.Name, set: z.Networks})
		case z == nil:
			if p, ok := c.setPart(item.Pos, item.Name); ok {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// serviceRefs finds services that the others of a list hold.
func (c *checker) serviceRefs(refs []policy.ServiceRef) {
	left := slices.Clone(refs)
	for i := len(left) - 1; i >= 0 && len(left) > 1; i-- {
		others := slices.Delete(slices.Clone(left), i, i+1)
		held := true
		for _, family := range []int{4, 6} {
			held = held && len(servicesOf(left[i:i+1], family).minus(servicesOf(others, family))) == 0
		}
		if held {
			c.report(RedundantElement, Remark, left[i].Pos, takeOut, "%s adds nothing to this list of services: %s %s all of it", left[i].Text,
				servicesText(others), map[bool]string{true: "covers", false: "cover"}[len(others) == 1])
			left = others
		}
	}
}
