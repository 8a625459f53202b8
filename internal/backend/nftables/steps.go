package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// small sets, in elements, are filled together.
const small = 2048

// fewest is up to how many elements a new set comes with the rules that ask it.
const fewest = 64

// stepper makes the steps from one state to a tree.
type stepper struct {
	want  *Tree
	have  *State
	used  map[string]bool // by the rules that the kernel has
	made  map[string]bool // chains that exist before the switch, for the elements of verdict maps
	steps []backend.Step
	// define makes what holds no elements: one transaction, before sets are filled, or
	// atOnce the beginning of the one that switches.
	define  strings.Builder
	atOnce  bool
	fills   fills
	carry   map[string]backend.Count // of counters that are to count elsewhere
	passing openings                 // what the switch lets pass for a moment
	ahead   bool                     // what is new in living sets comes before the switch
	older   kept                     // stays, though nothing wants it
}

// kept is the tree whose objects stay in the kernel; nil where none do.
type kept struct{ *Tree }

func (k kept) set(name string) bool { return k.Tree != nil && k.Tree.set(name) != nil }

func (k kept) counter(name string) bool {
	return k.Tree != nil && slices.ContainsFunc(k.Counters, func(c Counter) bool { return c.Name == name })
}

func (k kept) limit(name string) bool {
	return k.Tree != nil && slices.ContainsFunc(k.Limits, func(l Limit) bool { return l.Name == name })
}

// chain says so of a chain without its rules: elements of maps that stay lead there.
func (k kept) chain(h *Chain) bool {
	return k.Tree != nil && h.Base == nil && len(h.Rules) == 0 && k.Tree.chain(h.Name) != nil
}

func (k kept) family(f string) bool { return k.Tree != nil && slices.Contains(k.families(), f) }

// steps leave the objects of an older tree where they are, unless that is nil.
func steps(want *Tree, have *State, lets openings, older *Tree) []backend.Step {
	s := &stepper{want: want, have: have, used: have.Tree.used(), passing: lets, older: kept{older}}
	s.objects()
	s.emptyChains()
	s.sets()
	s.comes()
	s.switchRules()
	s.living()
	s.settle()
	s.endGrace()
	s.sweep()
	return s.steps
}

func (s *stepper) add(purpose backend.Purpose, name, text string) {
	if text != "" {
		s.steps = append(s.steps, backend.Step{Purpose: purpose, Name: name, Transaction: Script(text)})
	}
}

// send adds a step that sends elements; those that are empty are left out.
func (s *stepper) send(purpose backend.Purpose, name string, f *fills, edits ...edit) {
	edits = slices.DeleteFunc(edits, func(e edit) bool {
		return (e.remove == nil || e.remove.Len() == 0) && (e.insert == nil || e.insert.Len() == 0)
	})
	if len(edits) > 0 {
		s.steps = append(s.steps, backend.Step{Purpose: purpose, Name: name, Transaction: &contents{table: s.want.Table, edits: edits, fills: f}})
	}
}

// objects makes the table and what holds no elements.
func (s *stepper) objects() {
	b := &s.define
	for _, c := range s.want.Counters {
		if !slices.ContainsFunc(s.have.Tree.Counters, func(h Counter) bool { return h.Name == c.Name }) {
			start := ""
			if n, some := s.take(c.ID); some {
				start = fmt.Sprintf("packets %d bytes %d; ", n.Packets, n.Bytes)
			}
			fmt.Fprintf(b, "add counter %s { %s%s}\n", s.at(c.Name), start, c.body())
		}
	}
	for _, l := range s.want.Limits {
		if !slices.ContainsFunc(s.have.Tree.Limits, func(h Limit) bool { return h.Name == l.Name }) {
			fmt.Fprintf(b, "add limit %s { rate %s; }\n", s.at(l.Name), l.Rate.text())
		}
	}
	for _, k := range s.want.Sets {
		if k.Life == program.Dynamic && s.have.Tree.set(k.Name) == nil {
			fmt.Fprintf(b, "add set %s { %s }\n", s.at(k.Name), k.definition())
		}
	}
}

// emptyChains makes new base chains ahead of the switch, empty and open: the
// kernel may call a base chain before the transaction that makes it has
// published its rules (nf_tables_addchain registers the hook while it still
// reads the transaction), and then its policy would drop what they accept. On
// 6.18 no packet was seen lost either way.
func (s *stepper) emptyChains() {
	for _, c := range s.want.Chains {
		if c.Base == nil || s.have.Tree.chain(c.Name) != nil {
			continue
		}
		open := *c.Base
		open.Policy = "accept"
		fmt.Fprintf(&s.define, "add chain %s { %s }\n", s.at(c.Name), open.text())
	}
}

// begins says whether there are such base chains.
func (s *stepper) begins() bool {
	return slices.ContainsFunc(s.want.Chains, func(c *Chain) bool { return c.Base != nil && s.have.Tree.chain(c.Name) == nil })
}

// switchRules makes the one transaction after which the new rules hold.
func (s *stepper) switchRules() {
	if s.sameRules() {
		return
	}
	var b strings.Builder
	if s.atOnce {
		b.WriteString(s.define.String())
	}
	for _, family := range tableFamilies {
		switch {
		case s.goes(family):
			fmt.Fprintf(&b, "delete table %s %s\n", family, s.want.Table)
		case !s.comesNew(family), slices.Contains(s.want.families(), family):
			fmt.Fprintf(&b, "flush table %s %s\n", family, s.want.Table)
		}
	}
	b.WriteString(s.beginGrace())
	for _, h := range s.have.Tree.Chains {
		k := s.want.chain(h.Name)
		if s.goes(tableFamily(h.Name)) {
			continue
		}
		if k == nil && h.Base != nil && h.Base.Policy == "drop" {
			continue // closes before it is gone; settle deletes it
		}
		if k == nil && h.Base == nil {
			continue // elements of an old map may lead to it; sweep deletes it behind the map
		}
		if k == nil || (k.Base == nil) != (h.Base == nil) || !k.Base.sameHook(h.Base) {
			fmt.Fprintf(&b, "delete chain %s\n", s.at(h.Name))
		}
	}
	for _, h := range s.have.Tree.Flowtables {
		if !slices.ContainsFunc(s.want.Flowtables, h.same) {
			fmt.Fprintf(&b, "delete flowtable %s\n", s.at(h.Name))
		}
	}
	for _, family := range s.want.families() {
		s.switchTable(&b, family)
	}
	s.add(backend.Switch, fmt.Sprintf("rules (%d)", s.want.ruleCount()), b.String())
}

// switchTable writes what one table has from then on.
func (s *stepper) switchTable(b *strings.Builder, family string) {
	fmt.Fprintf(b, "table %s %s {\n", family, s.want.Table)
	for _, f := range s.want.Flowtables {
		if tableFamily(f.Name) == family && !slices.ContainsFunc(s.have.Tree.Flowtables, f.same) {
			fmt.Fprintf(b, "\tflowtable %s { %s }\n", f.Name, f.body())
		}
	}
	for _, c := range s.want.Chains {
		if tableFamily(c.Name) != family {
			continue
		}
		c = s.withPassage(c)
		if s.opens(c.Name) {
			c = &Chain{Name: c.Name, Comment: c.Comment, Base: withPolicy(c.Base, "drop"), Rules: append(slices.Clip(c.Rules), acceptAll)}
		}
		c.write(b)
	}
	for _, h := range s.vanishing() {
		if tableFamily(h.Name) == family {
			(&Chain{Name: h.Name, Base: h.Base, Rules: []Rule{acceptAll}}).write(b)
		}
	}
	b.WriteString("}\n")
}

func (s *stepper) switches() bool {
	return slices.ContainsFunc(s.steps, func(step backend.Step) bool { return step.Purpose == backend.Switch })
}

// at is where something of a name is, for nft.
func (s *stepper) at(name string) string { return place(s.want.Table, name) }

// goes says of the table of a family that it is there and nothing wants it: all that is
// in it goes with it.
func (s *stepper) goes(family string) bool {
	return !s.comesNew(family) && !slices.Contains(s.want.families(), family) && !s.older.family(family)
}

// comesNew says of the table of a family that it is not there yet.
func (s *stepper) comesNew(family string) bool { return !slices.Contains(s.have.families(), family) }

var acceptAll = Rule{Statements: []Statement{{Kind: Verdict, Name: "accept"}}}

func withPolicy(base *Base, policy string) *Base {
	out := *base
	out.Policy = policy
	return &out
}

func (f Flowtable) same(o Flowtable) bool {
	return f.Name == o.Name && slices.Equal(f.Devices, o.Devices)
}

func (t *Tree) ruleCount() int {
	n := 0
	for _, c := range t.Chains {
		n += len(c.Rules)
	}
	return n
}

// opens says whether a base chain goes from drop to accept. The kernel changes
// a policy a moment after the rules, and the old policy must not meet the new
// rules: without this a flood on 6.18 loses a few packets at each such change.
func (s *stepper) opens(chain string) bool {
	k, h := s.want.chain(chain), s.have.Tree.chain(chain)
	return k != nil && h != nil && k.Base != nil && k.Base.sameHook(h.Base) && h.Base.Policy == "drop" && k.Base.Policy == "accept"
}

// vanishing are the base chains that drop by policy and are to go: they meet
// the same moment.
func (s *stepper) vanishing() []*Chain {
	var out []*Chain
	for _, h := range s.have.Tree.Chains {
		if h.Base != nil && h.Base.Policy == "drop" && s.want.chain(h.Name) == nil && !s.goes(tableFamily(h.Name)) {
			out = append(out, h)
		}
	}
	return out
}

// settle brings base chains that opened to their form.
func (s *stepper) settle() {
	var policy, rules strings.Builder
	for _, c := range s.want.Chains {
		if s.opens(c.Name) {
			fmt.Fprintf(&policy, "add chain %s { policy accept; }\n", s.at(c.Name))
			fmt.Fprintf(&rules, "flush chain %s\n", s.at(c.Name))
			for _, r := range s.withPassage(c).Rules {
				fmt.Fprintf(&rules, "add rule %s %s\n", s.at(c.Name), r.line())
			}
		}
	}
	for _, h := range s.vanishing() {
		fmt.Fprintf(&policy, "add chain %s { policy accept; }\n", s.at(h.Name))
		fmt.Fprintf(&rules, "flush chain %[1]s\ndelete chain %[1]s\n", s.at(h.Name))
	}
	s.add(backend.Sweep, "open the policy of chains", policy.String())
	s.add(backend.Sweep, "final form of these chains", rules.String())
}

// sameRules says whether chains, rules and flowtables are what they should be,
// the comments of rules included.
func (s *stepper) sameRules() bool {
	extra := func(h *Chain) bool { return s.want.chain(h.Name) == nil && (h.Base != nil || len(h.Rules) > 0) }
	strange := func(e Extra) bool { return e.Kind == "chain" }
	if slices.ContainsFunc(s.have.Extra, strange) || len(s.have.Tree.Dormant) > 0 || slices.ContainsFunc(s.have.Tree.Chains, extra) || !slices.EqualFunc(s.want.Flowtables, s.have.Tree.Flowtables, Flowtable.same) {
		return false
	}
	for _, c := range s.want.Chains {
		h := s.have.Tree.chain(c.Name)
		if h == nil || (c.Base == nil) != (h.Base == nil) || c.Base != nil && c.Base.text() != h.Base.text() {
			return false
		}
		if !slices.EqualFunc(c.Rules, h.Rules, func(a, b Rule) bool { return a.normalLine() == b.normalLine() }) {
			return false
		}
	}
	return true
}

func (r Rule) normalLine() string {
	return Rule{Statements: normal(r.Statements), Comment: r.Comment}.line()
}

// sweep deletes what nobody uses any more.
func (s *stepper) sweep() {
	var b strings.Builder
	for _, h := range s.have.Tree.Sets {
		if s.want.set(h.Name) == nil && !s.older.set(h.Name) && !s.goes(tableFamily(h.Name)) {
			fmt.Fprintf(&b, "delete %s %s\n", h.noun(), s.at(h.Name))
		}
	}
	for _, h := range s.have.Tree.Counters {
		if !s.older.counter(h.Name) && !s.goes(tableFamily(h.Name)) && !slices.ContainsFunc(s.want.Counters, func(c Counter) bool { return c.Name == h.Name }) {
			fmt.Fprintf(&b, "delete counter %s\n", s.at(h.Name))
		}
	}
	for _, h := range s.have.Tree.Limits {
		if !s.older.limit(h.Name) && !s.goes(tableFamily(h.Name)) && !slices.ContainsFunc(s.want.Limits, func(l Limit) bool { return l.Name == h.Name }) {
			fmt.Fprintf(&b, "delete limit %s\n", s.at(h.Name))
		}
	}
	for _, e := range s.have.Extra {
		if !s.goes(e.Family) {
			fmt.Fprintf(&b, "delete %s %s %s %s\n", e.Kind, e.Family, s.want.Table, e.Name)
		}
	}
	if !s.switches() {
		for _, family := range slices.DeleteFunc(slices.Clone(s.have.families()), func(f string) bool { return !s.goes(f) }) {
			fmt.Fprintf(&b, "delete table %s %s\n", family, s.want.Table)
		}
	}
	if last := len(s.steps) - 1; s.atOnce && last >= 0 && s.steps[last].Purpose == backend.Switch {
		s.steps[last].Transaction = s.steps[last].Transaction.(Script) + Script(b.String())
	} else {
		s.add(backend.Sweep, "what nobody uses any more", b.String())
	}
	b.Reset()
	for _, h := range s.have.Tree.Chains {
		// Behind the maps whose elements lead there: the kernel gives up such an
		// element only when the transaction that deletes it is done.
		if h.Base == nil && s.want.chain(h.Name) == nil && !s.goes(tableFamily(h.Name)) && (s.older.Tree == nil || s.older.Tree.chain(h.Name) == nil) {
			fmt.Fprintf(&b, "delete chain %s\n", s.at(h.Name))
		}
	}
	s.add(backend.Sweep, "chains that nobody uses any more", b.String())
}

// removal takes everything away: first the policies open, then the table goes.
func removal(table string, have *State) []backend.Step {
	if !have.Present {
		return nil
	}
	var open strings.Builder
	for _, c := range have.Tree.Chains {
		if c.Base != nil && c.Base.Policy == "drop" {
			fmt.Fprintf(&open, "add chain %s { policy accept; }\n", place(table, c.Name))
		}
	}
	var out []backend.Step
	if open.Len() > 0 {
		out = append(out, backend.Step{Purpose: backend.Switch, Name: "open the policy of chains", Transaction: Script(open.String())})
	}
	var remove strings.Builder
	for _, family := range have.families() {
		// Adding first makes deleting work where somebody else was quicker.
		fmt.Fprintf(&remove, "add table %[1]s %[2]s\ndelete table %[1]s %[2]s\n", family, table)
	}
	return append(out, backend.Step{Purpose: backend.Switch, Name: "delete the table", Transaction: Script(remove.String())})
}

// lineage is the name of a set without the hash of its contents: sets of one
// lineage are versions of one another.
func lineage(name string) string {
	base, _ := cutHash(name, 16)
	if base == inlineSet+"4" || base == inlineSet+"6" {
		return name // the addresses of many rules, which have nothing to do with one another
	}
	return base
}

// cutHash cuts an underscore and n hexadecimal digits off the end of a name.
func cutHash(name string, n int) (base string, had bool) {
	at := len(name) - n - 1
	if at <= 0 || name[at] != '_' || strings.Trim(name[at+1:], "0123456789abcdef") != "" {
		return name, false
	}
	return name[:at], true
}
